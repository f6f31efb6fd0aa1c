"""One batch of one table, brought into Delta."""
