"""Repairs: comparisons of the target with itself and with the change tables, and corrections that move no offset."""
