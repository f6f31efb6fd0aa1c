"""Statements as text, and what a database makes of them."""
