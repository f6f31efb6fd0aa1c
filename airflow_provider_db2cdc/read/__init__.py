"""The read API: changes and states of a pipeline's target, for PySpark jobs downstream. It needs no Airflow."""

from __future__ import annotations

from airflow_provider_db2cdc.read.change_range import (
    BatchRange,
    ChangeRange,
    LsnRange,
    TimeRange,
    asset_event_range,
)
from airflow_provider_db2cdc.read.changes import ORDER, last_batch, read_changes
from airflow_provider_db2cdc.read.fold import fold, last_events
from airflow_provider_db2cdc.read.state import read_state

__all__ = [
    "ORDER",
    "BatchRange",
    "ChangeRange",
    "LsnRange",
    "TimeRange",
    "asset_event_range",
    "fold",
    "last_batch",
    "last_events",
    "read_changes",
    "read_state",
]
