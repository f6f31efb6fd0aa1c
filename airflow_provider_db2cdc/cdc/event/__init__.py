"""Change events, and what they mean for a row."""
