"""Failpoints: named places of a run where a test may wait, count, write, fail or kill the process.

Production code only declares them. No setting and no environment variable reaches this module: a failpoint is active
within a `failpoint_action` block, which only tests open. An inactive one costs the check of a module variable.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, get_args

Failpoint: TypeAlias = Literal[
    "prepare_batch_log", "read_history", "select_batch_rows", "plan_batch", "commit_batch",
    "publish_manifest", "check_newest_plan", "check_readable", "read_journal", "write_journal",
    "read_signals", "after_group", "prepare_table", "fence_writers", "exclude_chunks", "append_changes",
    "fill_state", "refill_state", "merge_state", "append_rows", "catch_up", "await_low_mark", "await_high_mark",
    "await_capture", "publish_group", "plan_chunks", "settle_table_snapshot", "read_group", "stage_chunks",
    "stage_rows", "read_chunk_rows", "count_chunks", "check_counts",
    "find_chunk_bounds", "compare_state", "compare_rows", "find_state_change",
    "append_found_deletes", "commit_effects", "net_effects", "count_batch", "count_ranges",
    "check_all_read", "read_frame", "read_parts", "query_source", "connect_source", "open_session",
    "read_table_history", "read_capture", "count_planned_changes", "put_offsets", "put_summary",
    "put_requests", "commit_offsets", "append_signal_lines", "hand_over_signal_file", "verify_chunks",
    "await_verified_mark", "append_verified", "delete_rows", "compare_table", "merge_abandoned",
]  # fmt: skip
"""Every failpoint. Its name says what the call does that it stands around."""

FAILPOINT_FRAME = "call_with_failpoint"
"""The name of the frame that a failpoint adds to each call's stack."""

When: TypeAlias = Literal["before", "after"]
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ReachedFailpoint:
    """A failpoint that a call has come to; `result` is what the call returned, None before it."""

    point: Failpoint
    when: When
    arguments: Mapping[str, Any]
    result: Any = None


Action: TypeAlias = Callable[[ReachedFailpoint], object]
Active: TypeAlias = tuple[tuple[Failpoint, When, Action], ...]

_active: Active = ()
_changing = Lock()


def failpoint(point: Failpoint) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare the failpoint of a function or method; its actions run in the thread of the call."""

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call_with_failpoint(*arguments: P.args, **named: P.kwargs) -> R:
            if not _active:
                return function(*arguments, **named)
            given = inspect.signature(function).bind(*arguments, **named).arguments
            _reach(ReachedFailpoint(point, "before", given))
            result = function(*arguments, **named)
            _reach(ReachedFailpoint(point, "after", given, result))
            return result

        return call_with_failpoint

    return declare


@contextmanager
def failpoint_action(point: Failpoint, before: Action | None = None, after: Action | None = None) -> Iterator[None]:
    """Run actions before and after each call of a failpoint, in all threads, until the block ends.

    What an action raises, the call raises. Blocks of one failpoint nest like calls: the innermost acts first before
    the call, and last after it.

    :raises ValueError: there is no such failpoint.
    """
    if point not in get_args(Failpoint):
        raise ValueError(f"there is no failpoint {point!r}")
    added: Active = tuple((point, when, action) for when, action in _given(before, after))
    _replace(lambda active: (*active, *added))
    try:
        yield
    finally:
        _replace(lambda active: tuple(entry for entry in active if not any(entry is own for own in added)))


def _given(before: Action | None, after: Action | None) -> Iterator[tuple[When, Action]]:
    if before is not None:
        yield "before", before
    if after is not None:
        yield "after", after


def _replace(change: Callable[[Active], Active]) -> None:
    # A new tuple each time, for a thread may be going through the old one.
    global _active
    with _changing:
        _active = change(_active)


def _reach(reached: ReachedFailpoint) -> None:
    active = _active if reached.when == "after" else _active[::-1]
    for point, when, action in active:
        if (point, when) == (reached.point, reached.when):
            action(reached)
