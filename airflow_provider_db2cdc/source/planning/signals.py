"""The signal table in a plan: which one it is, and its new signals."""

from __future__ import annotations

import logging
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import RejectedTable
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal, SignalTable
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.source.catalog import CaptureState
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.signal_table import read_signal_table, read_signals
from airflow_provider_db2cdc.sql.driver_error import LockedError, UnreachableError

log = logging.getLogger(__name__)


def plan_signal_table(
    source: Source, config: PipelineConfig, captured: CaptureState, refused: list[RejectedTable]
) -> SignalTable | None:
    """Return the table of signals, or of a snapshot's marks; one that is none is refused, and everything else goes on.

    Without its channel nobody hears it; the job is told of it only where marks need it.
    """
    is_wanted = SOURCE_CHANNEL in config.signal_channels or config.watermarking != "read_only"
    if not (config.signal_table and is_wanted):
        return None
    table = parse_table(config.signal_table, "signal.data.collection")
    try:
        found = read_signal_table(source, table, captured.registrations, config.watermarking)
        return replace(found, is_channel=SOURCE_CHANNEL in config.signal_channels)
    except Db2CdcError as error:
        _refuse_signals(table, str(error), refused)
        return None


def new_table_signals(source: Source, table: SignalTable | None, refused: list[RejectedTable]) -> list[Signal]:
    """Return the signals of the table where it is a channel, none if it cannot be read: then it is refused.

    But not for a lock, which the next tick may not meet.
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
        _refuse_signals(table.table, f"signal table {table.table} cannot be read: {error}", refused)
        return []


def _refuse_signals(table: TableId, error: str, refused: list[RejectedTable]) -> None:
    log.warning("refused: signal table %s: %s", table, error)
    refused.append(RejectedTable(table, error, is_replicated=False))
