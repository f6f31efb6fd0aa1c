"""Sizes that a pipeline meets: many rows, many changes, many columns, long rows."""
