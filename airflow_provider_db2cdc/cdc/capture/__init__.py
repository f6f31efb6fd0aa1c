"""The guarantees of the capture agent for a table."""
