"""Waiting, from a task's side."""
