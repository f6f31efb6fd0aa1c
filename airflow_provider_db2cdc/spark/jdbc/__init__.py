"""The source as Spark reads it."""
