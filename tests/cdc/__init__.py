"""The pure words and rules of change data capture."""
