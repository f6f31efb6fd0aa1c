"""Signals: what a person or a program asks of a pipeline, in Debezium's own form, and what became of it.

A signal is an id, a type and a JSON text, whatever channel it came by. Each is acted on once and ends as `done`,
`stopped`, `failed` or `refused` with a reason; nothing is only warned about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, TypeVar

from airflow_provider_db2cdc.cdc.capture import CaptureInstance
from airflow_provider_db2cdc.cdc.collection import Condition, check_condition, check_pattern
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError

T = TypeVar("T", str, list[Any])
SnapshotKind = Literal["initial", "incremental", "blocking"]
SignalStatus = Literal["accepted", "done", "stopped", "failed", "refused"]

SOURCE_CHANNEL = "source"
DIGEST_CHARACTERS = 12
MAX_PATTERN = 1_000
"""Characters of one data collection: a channel is open to more people than the configuration is."""


@dataclass(frozen=True)
class Signal:
    """A signal as a channel delivered it; `at_ms` is when it was given, where the channel knows that.

    `problem` is what the channel found wrong with its form, so that it can be refused by that.
    """

    id: str
    type: str
    data: str
    channel: str
    at_ms: int | None = None
    problem: str = ""

    @property
    def asked(self) -> str:
        """A digest of what it asks for: another one of its id and channel is another signal."""
        return sha256(json.dumps([self.type, self.data, self.problem]).encode()).hexdigest()[:DIGEST_CHARACTERS]

    @property
    def id_again(self) -> str:
        """The id by which it is answered where another signal had its own before."""
        return f"{self.id} #{self.asked}"

    def is_answered(self, outcomes: Collection[SignalOutcome]) -> bool:
        """Whether one of its channel's outcomes is its own, and not another signal's of its id.

        The id of one that is no signal is all that there is of it: what is wrong with it may be said in other words.
        """
        ids, asked = (self.id, self.id_again), self.asked
        return any(one.id in ids and (self.problem or one.asked == asked) for one in outcomes)


@dataclass(frozen=True)
class SignalTable:
    """A table of signals: its id, type and data columns as they are named; `capture` where it is itself captured.

    Where it is not `heard` it is there for the marks of snapshots alone.
    """

    table: TableId
    columns: tuple[str, ...]
    capture: CaptureInstance | None = None
    heard: bool = True


@dataclass(frozen=True)
class SignalOutcome:
    """What became of a signal; `reason` says why it was refused, stopped or failed, or what was left out of it.

    `asked` is the digest of what the signal asked for.
    """

    id: str
    channel: str
    status: SignalStatus
    reason: str = ""
    asked: str = ""


@dataclass(frozen=True)
class ExecuteSnapshot:
    """Read tables anew; `surrogate_key` is the column to cut chunks by, empty for the table's key."""

    collections: tuple[str, ...]
    kind: SnapshotKind = "incremental"
    conditions: tuple[Condition, ...] = ()
    surrogate_key: str = ""


@dataclass(frozen=True)
class StopSnapshot:
    """End running and waiting snapshots, or, where `collections` names some, those tables' part in them.

    A `kind` limits it to snapshots of that kind, and so pause and resume.
    """

    collections: tuple[str, ...] = ()
    kind: SnapshotKind | None = None


@dataclass(frozen=True)
class PauseSnapshot:
    """Read nothing more of snapshots until they are resumed."""

    kind: SnapshotKind | None = None


@dataclass(frozen=True)
class ResumeSnapshot:
    """Go on with paused snapshots."""

    kind: SnapshotKind | None = None


@dataclass(frozen=True)
class LogMessage:
    """Write a line to the log."""

    message: str


Request = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage


def signal_of(item: Any, channel: str, default_id: str, at_ms: int | None = None) -> Signal:
    """Return the signal that a JSON object, or the text of one, is: `{"id": ..., "type": ..., "data": {...}}`.

    One without an id gets the default one. What is none gets it too, and a problem, by which `parse` refuses it.
    """
    try:
        given = json.loads(item) if isinstance(item, str | bytes) else item
        if not isinstance(given, dict):
            return Signal(default_id, "", "", channel, at_ms, "it is no JSON object")
        id_, data = given.get("id"), given.get("data")
        name = default_id if id_ in (None, "") else str(id_)
        signal = Signal(name, str(given.get("type") or ""), _text({} if data is None else data), channel, at_ms)
        # Halves of surrogate pairs, which JSON's escapes may name, can be written nowhere.
        f"{signal.id}{signal.type}{signal.data}".encode()
    except (ValueError, RecursionError) as error:
        return Signal(default_id, "", "", channel, at_ms, f"it is not JSON: {error}")
    return signal


def parse(signal: Signal) -> Request:
    """Return what the signal asks for.

    :raises SignalError: its type is unknown, or its data are not what that type takes.
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


def _text(data: Any) -> str:
    return data if isinstance(data, str) else json.dumps(data)


def _object(text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text) if text.strip() else {}
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
    return ExecuteSnapshot(collections, _kind(data) or "incremental", _conditions(data), surrogate)


def _conditions(data: Mapping[str, Any]) -> tuple[Condition, ...]:
    form = 'Write [{"data-collection": ..., "filter": ...}].'
    nothing: list[Any] = []
    conditions = [_condition(item) for item in _given(data, "additional-conditions", nothing, form)]
    for pattern in {one.pattern for one in conditions}:
        if len({one.filter for one in conditions if one.pattern == pattern}) > 1:
            raise SignalError(f"{pattern!r} has two conditions", "Give one, joined by AND or OR.")
    if old := _given(data, "additional-condition", "", "Write one SQL condition."):
        conditions.append(_condition({"data-collection": "*", "filter": old}))
    return tuple(condition for condition in conditions if condition.filter)


def _condition(item: Any) -> Condition:
    names = {"data-collection", "filter"}
    if not isinstance(item, dict) or set(item) != names or not all(isinstance(text, str) for text in item.values()):
        raise SignalError(
            "an additional condition is not a data-collection and a filter",
            'Write {"data-collection": "SALES.ORDERS", "filter": "STATUS = 1"}.',
        )
    pattern, text = item["data-collection"], item["filter"].strip()
    if pattern != "*":
        _check_pattern(pattern)
    check_condition(text)
    return Condition(pattern, text)


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise SignalError(
            f"the data collection {pattern[:40]!r}... has {len(pattern)} characters, allowed are {MAX_PATTERN}",
            "Write several.",
        )
    check_pattern(pattern)


def _kind(data: Mapping[str, Any]) -> Literal["incremental", "blocking"] | None:
    match _given(data, "type", "", "Write incremental or blocking.").lower():
        case "":
            return None
        case "incremental":
            return "incremental"
        case "blocking":
            return "blocking"
        case other:
            raise SignalError(f"type {other!r} is no kind of snapshot", "Write incremental or blocking.")


def _stop(data: Mapping[str, Any]) -> StopSnapshot:
    collections = _texts(data, "data-collections")
    for pattern in collections:
        _check_pattern(pattern)
    return StopSnapshot(collections, _kind(data))


def _pause(data: Mapping[str, Any]) -> PauseSnapshot:
    return PauseSnapshot(_kind(data))


def _resume(data: Mapping[str, Any]) -> ResumeSnapshot:
    return ResumeSnapshot(_kind(data))


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
}


def _texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    nothing: list[Any] = []
    form = 'Write ["SALES.ORDERS", "SALES\\\\..*"].'
    items = _given(data, name, nothing, form)
    if not all(isinstance(item, str) and item for item in items):
        raise SignalError(f"{name} is not a list of names", form)
    return tuple(dict.fromkeys(items))


def _given(data: Mapping[str, Any], name: str, default: T, form: str) -> T:
    """Return what the data hold under a name, of the default's type; the default where it is not there, or null."""
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, type(default)):
        raise SignalError(f"{name} is not a {'text' if isinstance(default, str) else 'list'}", form)
    return value
