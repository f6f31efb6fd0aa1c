"""Signals that request snapshots and end them."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal
from airflow_provider_db2cdc.cdc.table import TableId


def execute(id_: str, *tables: TableId, **data: Any) -> Signal:
    """Return a request for an incremental snapshot of tables, unless `data` says otherwise."""
    return Signal(id_, "execute-snapshot", _data(tables, data), "airflow")


def stop(id_: str, *tables: TableId, **data: Any) -> Signal:
    """Return a request to stop the snapshots of tables."""
    return Signal(id_, "stop-snapshot", _data(tables, data), "airflow")


def in_signal_table(signal: Signal) -> Signal:
    """Return a signal as the signal table has it."""
    return Signal(signal.id, signal.type, signal.data, SOURCE_CHANNEL)


def _data(tables: tuple[TableId, ...], data: dict[str, Any]) -> str:
    return json.dumps({"data-collections": [str(table) for table in tables], **data})
