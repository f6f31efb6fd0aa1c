"""Snapshots: their tables, chunks, queue and progress."""
