"""Configuration files: found, read and resolved."""
