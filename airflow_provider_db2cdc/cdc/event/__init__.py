"""Change events, and their effect on rows."""
