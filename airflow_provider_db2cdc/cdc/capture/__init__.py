"""What the capture agent promises about a table."""
