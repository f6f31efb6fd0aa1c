"""Which tables, columns and keys a pipeline carries."""
