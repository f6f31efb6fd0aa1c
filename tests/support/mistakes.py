"""Mistakes in a snapshot's rules that the model makes on purpose, and the error that shows one."""

from __future__ import annotations

MISTAKES = (
    "drop for any event",
    "high mark is the fence at the read",
    "window on the new key only",
    "staged rows are read again after the mark",
    "low mark after the read began",
    "low mark before the snapshot was asked for",
    "strict bound on a surrogate key with duplicates",
    "uncommitted read",
    "last operation per key wins",
    "no sweep",
    "sweep by commit alone",
    "applied after the high mark",
    "window by positions",
    "any event is a sign of life",
    "what is left unchanged is unknown",
    "gone whatever wrote it since",
    "compared without the changes since",
)


class Wrong(AssertionError):
    """A rule does not hold."""
