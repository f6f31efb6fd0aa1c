"""The comparison of source and target, row by row, and its verdict."""
