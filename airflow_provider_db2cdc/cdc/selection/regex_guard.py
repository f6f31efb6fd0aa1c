r"""A limit for regular expressions of users: the number of ways to try one on a name that it does not match.

Python tries them one by one. An expression like `(\w+\.?)*!`, which repeats what may match in several ways, keeps a
tick busy for ever. More people can write to a channel of signals than to the configuration. Python's own parser of
expressions is private.
"""

from __future__ import annotations

import re
from functools import lru_cache

NAME_LENGTH = 64
"""Characters of a schema and a table together. Longer names are rare."""

MAX_WAYS = 10**8
"""The ways of four repeats in sequence, in a few alternatives."""

TOKEN = re.compile(
    r"(?P<nothing>\(\?#[^)]*\))"
    r"|(?P<other>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P=\w+\)|\(\?[a-zA-Z]+\))"
    r"|(?P<open>\((?:\?(?:P<\w+>|<?[=!]|[a-zA-Z]*(?:-[a-zA-Z]+)?:|>|\(\w+\)))?)"
    r"|(?P<close>\))"
    r"|(?P<bar>\|)"
    r"|(?P<repeat>(?:[*+?]|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)(?<!\{)\})[?+]?)"
    r"|.",
    re.DOTALL,
)

VERBOSE = re.compile(r"\(\?[a-wyzA-Z]*x")
"""Matches the verbose flag, with which blanks may stand between a part and its repeat. No table name needs it."""

Level = tuple[int, int, int]
"""The ways of a group's alternatives so far, of the current one without its last part, and of that part."""


def is_endless(expression: str) -> bool:
    """Return whether an expression that compiles may take too long on a name that it does not match."""
    return _ways(expression) > MAX_WAYS


@lru_cache(maxsize=1024)
def _ways(expression: str) -> int:
    """Return an upper bound of the ways to try the expression on a name, at most one more than `MAX_WAYS`."""
    if VERBOSE.search(expression):
        return MAX_WAYS + 1
    levels: list[Level] = [(0, 1, 1)]
    for token in TOKEN.finditer(expression):
        others, before, part = levels[-1]
        match token.lastgroup:
            case "nothing":
                pass
            case "open":
                levels.append((0, 1, 1))
            case "close" if len(levels) > 1:
                ways = _sum(levels.pop())
                levels[-1] = _with_part(levels[-1], ways)
            case "bar":
                levels[-1] = (_sum(levels[-1]), 1, 1)
            case "repeat":
                levels[-1] = (others, before, _repeated(part, _most(token)))
            case _:
                levels[-1] = _with_part(levels[-1], 1)
    return _sum(levels[0])


def _sum(level: Level) -> int:
    others, before, part = level
    return min(others + before * part, MAX_WAYS + 1)


def _with_part(level: Level, ways: int) -> Level:
    others, before, part = level
    return others, min(before * part, MAX_WAYS + 1), ways


def _most(repeat: re.Match[str]) -> int:
    """Return how many times at most a part is repeated within a name."""
    if repeat["repeat"][0] == "?":
        return 1
    most = repeat["most"] or ("" if repeat["comma"] else repeat["least"])
    return min(int(most), NAME_LENGTH) if most else NAME_LENGTH


def _repeated(ways: int, most: int) -> int:
    if most <= 1:
        return min(ways + 1, MAX_WAYS + 1)
    return most if ways == 1 else min(ways**most, MAX_WAYS + 1)
