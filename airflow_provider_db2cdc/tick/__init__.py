"""A tick under way: planned batches are applied through ports, and snapshots work through their queue."""
