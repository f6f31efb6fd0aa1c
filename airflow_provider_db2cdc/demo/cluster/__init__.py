"""A Spark standalone cluster on this machine, and how a job's work spreads over its workers."""
