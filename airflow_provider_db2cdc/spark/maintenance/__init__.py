"""Maintenance of a target's Delta tables, next to running ticks."""
