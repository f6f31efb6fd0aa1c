"""`db2cdc heal`: one tick that carries the signal for a heal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cli import tick
from airflow_provider_db2cdc.cli.screen import note
from airflow_provider_db2cdc.offsets.commit import raise_for_signals

CHANNEL = "cli"


def run(config: Path, tables: Sequence[str], where: str, as_json: bool, progress: bool) -> None:
    """Run one tick with the request, and say if later ticks continue the heal.

    :raises SignalError: when the request was refused or has failed.
    :raises TickFailedError: when some tables failed.
    """
    signal = heal_signal(tables, where, datetime.now(UTC))
    result = tick.carry(config, as_json, progress, [signal])
    if result is None:
        return
    raise_for_signals(result, CHANNEL)
    if any(
        (outcome.channel, outcome.id, outcome.status) == (CHANNEL, signal.id, "accepted") for outcome in result.signals
    ):
        note("the heal continues with the next tick; `db2cdc status` shows how far it is")


def heal_signal(tables: Sequence[str], where: str, now: datetime) -> Signal:
    """Return the signal that requests a heal of tables, or of their rows that meet a condition."""
    data = {"data-collections": [*tables], "type": "heal", **({"additional-condition": where} if where else {})}
    return Signal(f"heal__{now.isoformat()}", "execute-snapshot", json.dumps(data), CHANNEL)
