"""Measurements against the same work done barely, as ratios of one interleaved run."""
