"""Connections: the source, and Spark's job."""
