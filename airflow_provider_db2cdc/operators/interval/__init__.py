"""Runs that end at their data interval (`end.at=interval`): which interval a run has, and how its plan waits."""
