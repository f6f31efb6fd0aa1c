"""Offsets, and the batches that prove them."""
