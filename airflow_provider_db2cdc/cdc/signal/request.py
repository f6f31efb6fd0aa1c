"""The request of a signal, read from its type and data in Debezium's form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from airflow_provider_db2cdc.cdc.selection.select_override import is_select, reads_uncommitted
from airflow_provider_db2cdc.cdc.selection.table_names import Condition, check_condition, check_pattern
from airflow_provider_db2cdc.cdc.signal.action import OFFSET_ACTIONS, OffsetAction
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SnapshotKind, read_json
from airflow_provider_db2cdc.errors import SignalError

T = TypeVar("T", str, list[Any])

MAX_PATTERN = 1_000
"""Characters of one data collection: more people can write to a channel than to the configuration."""

KINDS = "Write incremental, blocking or heal."


@dataclass(frozen=True)
class ExecuteSnapshot:
    """Snapshot tables again. `surrogate_key` is the column that cuts chunks, empty for the table's key."""

    collections: tuple[str, ...]
    kind: SnapshotKind = "incremental"
    conditions: tuple[Condition, ...] = ()
    surrogate_key: str = ""


@dataclass(frozen=True)
class StopSnapshot:
    """End running and waiting snapshots. With `collections`, end only the part of those tables in them.

    A `kind` limits the request to snapshots of that kind. The same holds for pause and resume.
    """

    collections: tuple[str, ...] = ()
    kind: SnapshotKind | None = None


@dataclass(frozen=True)
class PauseSnapshot:
    """Read no more of snapshots until they are resumed."""

    kind: SnapshotKind | None = None


@dataclass(frozen=True)
class ResumeSnapshot:
    """Continue paused snapshots."""

    kind: SnapshotKind | None = None


@dataclass(frozen=True)
class LogMessage:
    """Write a line to the log."""

    message: str


@dataclass(frozen=True)
class ChangeOffsets:
    """Restart tables or restore their offsets. With `all_failed` also the tables that failed in the last tick."""

    action: OffsetAction
    collections: tuple[str, ...] = ()
    all_failed: bool = False

    @property
    def misplaced(self) -> SignalError:
        """The error of a tick, whose plan has already read the offsets."""
        return SignalError(
            f"a {self.action} is only taken from the conf of an Airflow run",
            f"Trigger a run of the pipeline's DAG with it, or use `db2cdc offset {self.action}`.",
        )


Request = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage | ChangeOffsets


def parse(signal: Signal) -> Request:
    """Return the request of the signal.

    :raises SignalError: when its type is unknown, or its data do not fit the type.
    """
    if not signal.id:
        raise SignalError("it has no id", "Give each signal an id of its own.")
    if signal.problem or not signal.type:
        raise SignalError(signal.problem or "it has no type", 'Write {"id": "...", "type": "...", "data": {...}}.')
    reader = READERS.get(signal.type)
    if reader is None:
        raise SignalError(f"its type {signal.type!r} is unknown", f"Known are {', '.join(READERS)}.")
    names, read = reader
    data = _object(signal.data)
    if unknown := sorted(set(data) - names):
        raise SignalError(f"{signal.type} takes no {unknown[0]!r}", f"It takes {', '.join(sorted(names))}.")
    return read(data)


def _object(text: str) -> Mapping[str, Any]:
    try:
        data = read_json(text) if text.strip() else {}
        json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise SignalError(f"its data are not JSON: {error}", 'Write them like {"data-collections": [...]}.') from None
    if not isinstance(data, dict):
        raise SignalError("its data are not a JSON object", 'Write them like {"data-collections": [...]}.')
    return data


def _execute(data: Mapping[str, Any]) -> ExecuteSnapshot:
    collections = _texts(data, "data-collections")
    if not collections:
        raise SignalError("it names no data-collections", 'Name tables, as in {"data-collections": ["SALES.ORDERS"]}.')
    for pattern in collections:
        _check_pattern(pattern)
    surrogate = _given(data, "surrogate-key", "", "Name one column.")
    kind, conditions = _kind(data) or "incremental", _conditions(data)
    for condition in conditions:
        if is_select(condition.filter):
            _check_select(condition, kind)
    return ExecuteSnapshot(collections, kind, conditions, surrogate)


def _conditions(data: Mapping[str, Any]) -> tuple[Condition, ...]:
    form = 'Write [{"data-collection": ..., "filter": ...}].'
    nothing: list[Any] = []
    conditions = [_condition(item) for item in _given(data, "additional-conditions", nothing, form)]
    for pattern in {condition.pattern for condition in conditions}:
        if len({condition.filter for condition in conditions if condition.pattern == pattern}) > 1:
            raise SignalError(f"'{pattern}' has two conditions", "Give one, joined by AND or OR.")
    if old := _given(data, "additional-condition", "", "Write one SQL condition."):
        conditions.append(_condition({"data-collection": "*", "filter": old}))
    return tuple(dict.fromkeys(conditions))


def _condition(item: Any) -> Condition:
    names = {"data-collection", "filter"}
    if not isinstance(item, dict) or set(item) != names or not all(isinstance(text, str) for text in item.values()):
        raise SignalError(
            "an additional condition is not a data-collection and a filter",
            'Write {"data-collection": "SALES.ORDERS", "filter": "STATUS = 1"}.',
        )
    pattern, text = item["data-collection"], item["filter"].strip()
    if not text:
        raise SignalError(f"the condition for {pattern} is empty", "Write a condition, or remove this one.")
    if pattern == "*":
        check_condition(text)
    else:
        _check_pattern(pattern)
        check_condition(text, f" for {pattern}")
    return Condition(pattern, text)


def _check_select(condition: Condition, kind: SnapshotKind) -> None:
    if kind != "blocking":
        raise SignalError(
            f"the filter for {condition.pattern} is a select, which {kind} snapshots do not take",
            'Give only its condition, or request {"type": "blocking"}.',
        )
    if reads_uncommitted(condition.filter):
        raise SignalError(f"the select for {condition.pattern} reads uncommitted rows (WITH UR)", "Remove WITH UR.")


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise SignalError(
            f"the data collection '{pattern[:40]}...' has {len(pattern)} characters, allowed are {MAX_PATTERN}",
            "Write several.",
        )
    check_pattern(pattern)


def _kind(data: Mapping[str, Any]) -> Literal["incremental", "blocking", "heal"] | None:
    match _given(data, "type", "", KINDS).lower():
        case "":
            return None
        case "incremental":
            return "incremental"
        case "blocking":
            return "blocking"
        case "heal":
            return "heal"
        case unknown:
            raise SignalError(f"type {unknown!r} is not a kind of snapshot", KINDS)


def _stop(data: Mapping[str, Any]) -> StopSnapshot:
    collections = _texts(data, "data-collections")
    for pattern in collections:
        _check_pattern(pattern)
    return StopSnapshot(collections, _kind(data))


def _pause(data: Mapping[str, Any]) -> PauseSnapshot:
    return PauseSnapshot(_kind(data))


def _resume(data: Mapping[str, Any]) -> ResumeSnapshot:
    return ResumeSnapshot(_kind(data))


def _change_offsets(action: OffsetAction, data: Mapping[str, Any]) -> ChangeOffsets:
    collections, all_failed = _texts(data, "data-collections"), data.get("all-failed") or False
    if not isinstance(all_failed, bool):
        raise SignalError("all-failed is not true or false", "Write true, or omit it.")
    if not (collections or all_failed):
        raise SignalError(
            "it names no data-collections",
            'Name tables, as in {"data-collections": ["SALES.ORDERS"]}, or write {"all-failed": true}.',
        )
    for pattern in collections:
        _check_pattern(pattern)
    return ChangeOffsets(action, collections, all_failed)


def _log(data: Mapping[str, Any]) -> LogMessage:
    message = data.get("message")
    if not isinstance(message, str):
        raise SignalError("it has no message", 'Write {"message": "..."}; {} in it stands for the offsets.')
    return LogMessage(message)


READERS: Mapping[str, tuple[set[str], Callable[[Mapping[str, Any]], Request]]] = {
    "execute-snapshot": (
        {"data-collections", "type", "additional-conditions", "additional-condition", "surrogate-key"},
        _execute,
    ),
    "stop-snapshot": ({"data-collections", "type"}, _stop),
    "pause-snapshot": ({"type"}, _pause),
    "resume-snapshot": ({"type"}, _resume),
    "log": ({"message"}, _log),
    **{
        type_: ({"data-collections", "all-failed"}, partial(_change_offsets, action))
        for type_, action in OFFSET_ACTIONS.items()
    },
}


def _texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    nothing: list[Any] = []
    form = 'Write ["SALES.ORDERS", "SALES\\\\..*"].'
    items = _given(data, name, nothing, form)
    if not all(isinstance(item, str) and item for item in items):
        raise SignalError(f"{name} is not a list of names", form)
    return tuple(dict.fromkeys(items))


def _given(data: Mapping[str, Any], name: str, default: T, form: str) -> T:
    """Return the value under a name, checked against the default's type. A missing or null value gives the default."""
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, type(default)):
        raise SignalError(f"{name} is not a {'text' if isinstance(default, str) else 'list'}", form)
    return value
