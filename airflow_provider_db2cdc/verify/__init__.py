"""A verification: it compares the tables of a source with their current state, and writes only its report."""
