"""Commands that run a tick with a signal."""
