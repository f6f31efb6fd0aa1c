"""Maintenance of a target: what may be trimmed, and which files are worth rewriting."""
