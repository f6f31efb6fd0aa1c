"""The signal table in a plan: which one it is, and its new signals."""

from __future__ import annotations

import logging
from dataclasses import replace

from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal, SignalTable
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.source.catalog import CaptureState
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.signal_table import read_signal_table, read_signals
from airflow_provider_db2cdc.sql.driver_error import LockedError, UnreachableError

log = logging.getLogger(__name__)


def plan_signal_table(
    source: Source, config: PipelineConfig, captured: CaptureState, rejected: list[RejectedTable]
) -> SignalTable | None:
    """Return the table of signals or of a snapshot's watermarks, or None if the pipeline uses none.

    A table that does not serve is added to `rejected`, and everything else continues. If its channel is not enabled,
    its signals are not read. The spec then has the table only if the strategy writes watermarks into it.
    """
    is_wanted = SOURCE_CHANNEL in config.signal_channels or config.watermarking != "read_only"
    if not (config.signal_table and is_wanted):
        return None
    table = parse_table(config.signal_table, "signal.data.collection")
    try:
        signal_table = read_signal_table(source, table, captured.registrations, config.watermarking)
        return replace(signal_table, is_channel=SOURCE_CHANNEL in config.signal_channels)
    except Db2CdcError as error:
        _reject_signals(table, str(error), rejected)
        return None


def new_table_signals(source: Source, table: SignalTable | None, rejected: list[RejectedTable]) -> list[Signal]:
    """Return the signals of the table if it is a channel.

    If it cannot be read there are none, and the table is rejected. A lock does not reject it, because the next tick may
    not meet the lock.
    """
    if table is None or not table.is_channel:
        return []
    try:
        return read_signals(source, table)
    except UnreachableError:
        raise
    except LockedError as error:
        log.warning("signals: those of %s are left to the next tick: %s", table.table, error)
        return []
    except Db2CdcError as error:
        _reject_signals(table.table, f"signal table {table.table} cannot be read: {error}", rejected)
        return []


def _reject_signals(table: TableId, error: str, rejected: list[RejectedTable]) -> None:
    log.warning("rejected: signal table %s: %s", table, error)
    rejected.append(RejectedTable(table, error, is_replicated=False))
