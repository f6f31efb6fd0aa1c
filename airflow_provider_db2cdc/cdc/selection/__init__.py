"""The tables, columns and keys that a pipeline carries."""
