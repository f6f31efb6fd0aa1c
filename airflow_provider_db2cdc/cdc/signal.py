"""Signals: what a person or a program asks of a pipeline, in Debezium's own form, and what became of it.

A signal is an id, a type and a JSON text, whatever channel it came by. Each is acted on once and ends as `done`,
`stopped`, `failed` or `refused` with a reason; nothing is only warned about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_db2cdc.cdc.capture import CaptureInstance
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError

SnapshotKind = Literal["initial", "incremental", "blocking"]
SignalStatus = Literal["accepted", "done", "stopped", "failed", "refused"]

SOURCE_CHANNEL = "source"

QUOTED_NAME = re.compile(r'("(?:[^"]|"")+"|[^".]+)\.("(?:[^"]|"")+"|[^".]+)')
TEXT_OR_NAME = {"'": "text", '"': "quoted name"}


@dataclass(frozen=True)
class Signal:
    """A signal as a channel delivered it; `at_ms` is when it was given, where the channel knows that."""

    id: str
    type: str
    data: str
    channel: str
    at_ms: int | None = None


@dataclass(frozen=True)
class SignalTable:
    """A table of signals: its id, type and data columns as they are named; `capture` where it is itself captured."""

    table: TableId
    columns: tuple[str, ...]
    capture: CaptureInstance | None = None


@dataclass(frozen=True)
class SignalOutcome:
    """What became of a signal; `reason` says why it was refused, stopped or failed."""

    id: str
    channel: str
    status: SignalStatus
    reason: str = ""


@dataclass(frozen=True)
class Condition:
    """A filter for the tables that `pattern` names: only their rows that meet it are read."""

    pattern: str
    filter: str


@dataclass(frozen=True)
class ExecuteSnapshot:
    """Read tables anew; `surrogate_key` is the column to cut chunks by, empty for the table's key."""

    collections: tuple[str, ...]
    kind: SnapshotKind = "incremental"
    conditions: tuple[Condition, ...] = ()
    surrogate_key: str = ""


@dataclass(frozen=True)
class StopSnapshot:
    """End running and waiting snapshots, or, where `collections` names some, those tables' part in them."""

    collections: tuple[str, ...] = ()


@dataclass(frozen=True)
class PauseSnapshot:
    """Read nothing more of snapshots until they are resumed."""


@dataclass(frozen=True)
class ResumeSnapshot:
    """Go on with paused snapshots."""


@dataclass(frozen=True)
class LogMessage:
    """Write a line to the log."""

    message: str


Request = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage


def parse(signal: Signal) -> Request:
    """Return what the signal asks for.

    :raises SignalError: its type is unknown, or its data are not what that type takes.
    """
    if not signal.id:
        raise SignalError("it has no id", "Give each signal an id of its own.")
    if not signal.type:
        raise SignalError("it has no type", 'Write {"id": "...", "type": "...", "data": {...}}.')
    reader = READERS.get(signal.type)
    if reader is None:
        raise SignalError(f"its type {signal.type!r} is unknown", f"Known are {', '.join(READERS)}.")
    names, read = reader
    data = _object(signal.data)
    if unknown := sorted(set(data) - names):
        raise SignalError(f"{signal.type} takes no {unknown[0]!r}", f"It takes {', '.join(sorted(names))}.")
    return read(data)


def match_tables(pattern: str, tables: Iterable[TableId]) -> list[TableId]:
    r"""Return the tables that a data collection names: `S."t.x"` exactly, else an anchored regex on `schema.table`.

    A regex knows no case, as in table.include.list.

    :raises SignalError: it does not compile, or matches none of the tables.
    """
    ordered = sorted(set(tables))
    if '"' in pattern:
        found = [table for table in ordered if table == _quoted(pattern)]
    else:
        found = [table for table in ordered if _compiled(pattern).fullmatch(str(table))]
    if not found:
        listed = ", ".join(map(str, ordered[:20])) or "none"
        raise SignalError(f"{pattern!r} matches no table of this pipeline", f"Its tables are {listed}.")
    return found


def parse_table(name: str) -> TableId:
    """Return the table that a setting names, as schema.table or quoted.

    :raises SignalError: it is neither.
    """
    return _quoted(name)


def condition_of(table: TableId, conditions: Sequence[Condition]) -> str:
    """Return the filter of the first condition whose pattern names the table, empty for none."""
    for condition in conditions:
        if condition.pattern == "*" or _names(condition.pattern, table):
            return condition.filter
    return ""


def check_condition(text: str) -> None:
    """Refuse a filter that could be anything but one condition: it is put in parentheses into selects.

    :raises SignalError: it holds `;` or a comment outside of quotes, or leaves quotes or parentheses open.
    """
    depth, quote = 0, ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in TEXT_OR_NAME:
            quote = character
        elif character == ";" or text[at : at + 2] in ("--", "/*"):
            raise SignalError(f"the condition holds {text[at : at + 2].strip()!r}", "Give one SQL condition alone.")
        else:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                break
    if quote:
        raise SignalError(f"the condition leaves a {TEXT_OR_NAME[quote]} open", "Close it.")
    if depth:
        raise SignalError("the condition's parentheses do not match", "Close each where it is opened.")


def _object(text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text) if text.strip() else {}
    except ValueError as error:
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
    kind = _kind(data)
    surrogate = data.get("surrogate-key") or ""
    if not isinstance(surrogate, str):
        raise SignalError("surrogate-key is not a text", "Name one column.")
    return ExecuteSnapshot(collections, kind, _conditions(data), surrogate)


def _conditions(data: Mapping[str, Any]) -> tuple[Condition, ...]:
    items = data.get("additional-conditions") or []
    if not isinstance(items, list):
        raise SignalError("additional-conditions is not a list", 'Write [{"data-collection": ..., "filter": ...}].')
    conditions = [_condition(item) for item in items]
    if old := data.get("additional-condition"):
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


def _kind(data: Mapping[str, Any]) -> Literal["incremental", "blocking"]:
    match str(data.get("type") or "incremental").lower():
        case "incremental":
            return "incremental"
        case "blocking":
            return "blocking"
        case other:
            raise SignalError(f"type {other!r} is no kind of snapshot", "Write incremental or blocking.")


def _stop(data: Mapping[str, Any]) -> StopSnapshot:
    _kind(data)
    collections = _texts(data, "data-collections")
    for pattern in collections:
        _check_pattern(pattern)
    return StopSnapshot(collections)


def _pause(data: Mapping[str, Any]) -> PauseSnapshot:
    _kind(data)
    return PauseSnapshot()


def _resume(data: Mapping[str, Any]) -> ResumeSnapshot:
    _kind(data)
    return ResumeSnapshot()


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
    items = data.get(name) or []
    if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
        raise SignalError(f"{name} is not a list of names", 'Write ["SALES.ORDERS", "SALES\\\\..*"].')
    return tuple(dict.fromkeys(items))


def _check_pattern(pattern: str) -> None:
    if '"' in pattern:
        _quoted(pattern)
    else:
        _compiled(pattern)


def _names(pattern: str, table: TableId) -> bool:
    return table == _quoted(pattern) if '"' in pattern else bool(_compiled(pattern).fullmatch(str(table)))


def _quoted(pattern: str) -> TableId:
    found = QUOTED_NAME.fullmatch(pattern)
    if found is None:
        raise SignalError(f"{pattern!r} is not a quoted name", 'Write it as "schema"."table".')
    schema, name = (part[1:-1].replace('""', '"') if part.startswith('"') else part for part in found.groups())
    return TableId(schema, name)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise SignalError(f"{pattern!r} is not a regular expression: {error}", "Correct it.") from None
