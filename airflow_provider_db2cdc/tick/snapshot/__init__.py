"""Snapshots in a tick: signals, the snapshot queue, and the read and publication of chunk groups."""
