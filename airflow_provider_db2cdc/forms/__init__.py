"""The trigger forms of the shipped DAGs."""
