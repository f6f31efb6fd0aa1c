"""Offsets, and the batches that establish them."""
