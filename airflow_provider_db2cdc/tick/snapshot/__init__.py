"""Snapshots under way in a tick."""
