"""Delta tables: created, read and written."""
