"""The plan of a tick: which tables go how far."""
