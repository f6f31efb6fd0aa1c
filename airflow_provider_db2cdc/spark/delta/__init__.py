"""Delta tables: creation, reads and writes."""
