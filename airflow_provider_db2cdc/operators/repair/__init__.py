"""Backfill runs: which interval a run has, how it is planned, and what its commit reports."""
