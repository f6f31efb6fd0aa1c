"""Configuration files: reading, parsing and placeholders."""
