"""A run that repairs the target: it compares each table, and plans a batch only where something differs."""
