"""Events and rows as Spark frames."""
