"""Signals: what a person or a program asks of a pipeline, in Debezium's own form, and what became of it.

A signal is an id, a type and a JSON text, whatever channel it came by. Each is acted on once and ends as `done`,
`stopped`, `failed` or `refused` with a reason; nothing is only warned about.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.table import TableId

SnapshotKind = Literal["initial", "incremental", "blocking"]
SignalStatus = Literal["accepted", "done", "stopped", "failed", "refused"]

SOURCE_CHANNEL = "source"
DIGEST_CHARACTERS = 12
MAX_ID = 300
"""Characters of an id that a channel brings (a run's has 250): each is kept with its outcome where offsets are."""
MAX_REASON = 10_000
"""Characters of why one was refused, kept there too: it may repeat what the signal says."""


@dataclass(frozen=True)
class Signal:
    """A signal as a channel delivered it; `at_ms` is when it was given, where the channel knows that.

    `problem` is what the channel found wrong with its form, so that it can be refused by that. Whatever else a channel
    of one's own puts in becomes a text, or the signal's problem: it is handed on as JSON.
    """

    id: str
    type: str
    data: str
    channel: str
    at_ms: int | None = None
    problem: str = ""

    def __post_init__(self) -> None:
        """Make it one that can be handed on."""
        for name in ("problem", "id", "type", "data"):
            text, problem = _sound(getattr(self, name))
            object.__setattr__(self, name, text)
            object.__setattr__(self, "problem", self.problem or problem)
        object.__setattr__(self, "at_ms", self.at_ms if type(self.at_ms) is int else None)

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

    The source pads the values of its `padded` columns with blanks. Where it is not `is_channel` it is there for the
    marks of snapshots only.
    """

    table: TableId
    columns: tuple[str, ...]
    capture: CaptureRegistration | None = None
    is_channel: bool = True
    padded: tuple[str, ...] = ()

    @property
    def shown(self) -> CaptureRegistration | None:
        """The capture in whose change table its signals stand: none before it has shown the first row.

        Until then the table itself has more, as what was inserted before the agent has read the registration.
        """
        return self.capture if self.capture is not None and self.capture.new_synchpoint is not None else None


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

    @property
    def as_json(self) -> str:
        """What a channel is told of it, a JSON object."""
        return json.dumps({"id": self.id, "status": self.status, "reason": self.reason})


def signal_of(item: Any, channel: str, default_id: str, at_ms: int | None = None) -> Signal:
    """Return the signal that a JSON object, or the text of one, is: `{"id": ..., "type": ..., "data": {...}}`.

    One without an id gets the default one. What is none gets it too, and a problem, by which `parse` refuses it.
    A name beside these three is a problem: a stop whose tables stand in the wrong place would stop everything.
    """
    try:
        given = read_json(item) if isinstance(item, str | bytes) else item
        if not isinstance(given, dict):
            return Signal(default_id, "", "", channel, at_ms, "it is no JSON object")
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
        return replace(signal, problem=f"it has {unknown[0]!r} beside id, type and data")
    return signal


def read_json(text: str | bytes) -> Any:
    """Return what a JSON text says.

    :raises ValueError: it is none, or an object names something twice: which of the two is meant is not ours to say.
    """
    return json.loads(text, object_pairs_hook=_named_once)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return named


def _sound(value: Any) -> tuple[str, str]:
    """Return a value as a text, or what is wrong with it."""
    try:
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        # Halves of surrogate pairs, which JSON's escapes may name, can be written nowhere.
        text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        return "", f"it is not JSON: {error}"
    return text, ""
