"""A verification on Spark."""
