"""A tick under way: batches are planned and applied through ports, and the snapshot queue is worked through."""
