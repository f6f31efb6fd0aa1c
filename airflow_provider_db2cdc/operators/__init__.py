"""The tasks of a tick, and the task group that connects them."""
