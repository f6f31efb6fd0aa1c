"""Signals: the requests of people and programs to a pipeline, in Debezium's own form, and their outcomes.

A signal is an id, a type and a JSON text, whatever its channel. Each is acted on once. It ends as `done`, `stopped`,
`failed` or `refused` with a reason. No problem causes only a warning.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.table import TableId

SnapshotKind = Literal["initial", "incremental", "blocking", "heal"]
SignalStatus = Literal["accepted", "done", "stopped", "failed", "refused"]

SOURCE_CHANNEL = "source"
DIGEST_CHARACTERS = 12
MAX_ID = 300
"""Characters of an id from a channel (a run's has 250). The offset store keeps each id with its outcome."""
MAX_REASON = 10_000
"""Characters of a refusal's reason, which the store keeps too. It may repeat the text of the signal."""


@dataclass(frozen=True)
class Signal:
    """A signal as a channel delivered it. `at_ms` is when it was given, where the channel knows that.

    `problem` is the channel's finding on a wrong form, by which the signal is refused. A custom channel may pass values
    of other types. They become texts or the signal's problem, because the signal is handed on as JSON.
    """

    id: str
    type: str
    data: str
    channel: str
    at_ms: int | None = None
    problem: str = ""

    def __post_init__(self) -> None:
        """Convert its values to what JSON can hold."""
        for name in ("problem", "id", "type", "data"):
            text, problem = _sound(getattr(self, name))
            object.__setattr__(self, name, text)
            object.__setattr__(self, "problem", self.problem or problem)
        object.__setattr__(self, "at_ms", self.at_ms if type(self.at_ms) is int else None)

    @property
    def asked(self) -> str:
        """A digest of the request. Another digest under the same id and channel is another signal."""
        return sha256(json.dumps([self.type, self.data, self.problem]).encode()).hexdigest()[:DIGEST_CHARACTERS]

    @property
    def id_again(self) -> str:
        """The id of its answer where another signal had its own id before."""
        return f"{self.id} #{self.asked}"

    def is_answered(self, outcomes: Collection[SignalOutcome]) -> bool:
        """Return whether one of its channel's outcomes is its own, and not that of another signal with its id.

        An item that is not a valid signal has only its id to compare: the text of its problem may vary.
        """
        ids, digest = (self.id, self.id_again), self.asked
        return any(outcome.id in ids and (self.problem or outcome.asked == digest) for outcome in outcomes)


@dataclass(frozen=True)
class SignalTable:
    """A table of signals: its id, type and data columns by name, and its `capture` where it is itself captured.

    The source pads the values of its `padded` columns with blanks. Where `is_channel` is False the table only holds the
    watermarks of snapshots.
    """

    table: TableId
    columns: tuple[str, ...]
    capture: CaptureRegistration | None = None
    is_channel: bool = True
    padded: tuple[str, ...] = ()

    @property
    def shown(self) -> CaptureRegistration | None:
        """The capture whose change table has its signals, None before capture has shown the first row.

        Until then the table itself has more rows: some were inserted before the agent read the registration.
        """
        return self.capture if self.capture is not None and self.capture.new_synchpoint is not None else None


@dataclass(frozen=True)
class SignalOutcome:
    """The outcome of a signal. `reason` says why it was refused, stopped or failed, or which part of it was not done.

    `asked` is the digest of the signal's request.
    """

    id: str
    channel: str
    status: SignalStatus
    reason: str = ""
    asked: str = ""

    @property
    def as_json(self) -> str:
        """The report of the outcome to a channel, a JSON object."""
        return json.dumps({"id": self.id, "status": self.status, "reason": self.reason})


def signal_of(item: Any, channel: str, default_id: str, at_ms: int | None = None) -> Signal:
    """Return the signal that a JSON object or its text describes: `{"id": ..., "type": ..., "data": {...}}`.

    A signal without an id gets the default one. An item that is not a signal gets it too, and a problem, by which
    `parse` refuses it. Any further name is a problem: a stop whose tables stand in the wrong place would stop
    everything.
    """
    try:
        given = read_json(item) if isinstance(item, str | bytes) else item
        if not isinstance(given, dict):
            return Signal(default_id, "", "", channel, at_ms, "it is not a JSON object")
        id_, data = given.get("id"), given.get("data")
        name = default_id if id_ in (None, "") else str(id_)
        signal = Signal(name, str(given.get("type") or ""), {} if data is None else data, channel, at_ms)
    except (ValueError, RecursionError) as error:
        return Signal(default_id, "", "", channel, at_ms, f"it is not JSON: {error}")
    if signal.problem:
        return Signal(default_id, "", "", channel, at_ms, signal.problem)
    if len(signal.id) > MAX_ID:
        return Signal(default_id, "", "", channel, at_ms, f"its id has {len(signal.id)} characters, {MAX_ID} at most")
    if unknown := sorted(map(str, given.keys() - {"id", "type", "data"})):
        return replace(signal, problem=f"it has {unknown[0]!r}, but takes only id, type and data")
    return signal


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    :raises ValueError: when it is not JSON, or an object has a name twice and so is ambiguous.
    """
    return json.loads(text, object_pairs_hook=_named_once)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return named


def _sound(value: Any) -> tuple[str, str]:
    """Return a value as a text, and an empty problem. If JSON cannot hold it, return an empty text and the problem."""
    try:
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        # JSON's escapes may name half of a surrogate pair, which no encoding can write.
        text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        return "", f"it is not JSON: {error}"
    return text, ""
