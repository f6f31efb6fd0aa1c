"""The tasks of a tick, and the group that wires them."""
