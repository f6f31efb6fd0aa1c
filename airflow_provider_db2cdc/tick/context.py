"""What a tick works with from its beginning to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import BatchHistory
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.ports import BatchLog, Source, Tables


@dataclass(frozen=True)
class RunContext:
    """The plan of a tick, its ports, and the batches before it. Nothing in it changes during the tick."""

    spec: JobSpec
    batch_log: BatchLog
    source: Source
    target: Tables
    history: BatchHistory

    @cached_property
    def tasks(self) -> Mapping[TableId, TableTask]:
        """The plan's task for each table."""
        return {task.table: task for task in self.spec.tables}

    def capture_lsn(self) -> Lsn | None:
        """Ask the source for its current capture position, None before capture has begun."""
        with self.source.connect() as reader:
            return reader.capture_lsn()


def read_history(batch_log: BatchLog, spec: JobSpec) -> BatchHistory:
    """Return the batches since the offsets.

    The newest batch is at least the newest one that was committed. An older copy of the target does not have it.
    Consumers of the change log follow batch numbers, so no number may come twice.

    Where a table has a stored offset but no batch there, its batches are read from its last applied batch on.
    """
    since = {task.table: task.batch for task in spec.tables}
    history = batch_log.history(since)
    unproven = {
        task.table: 0 for task in spec.tables if task.stored_lsn and task.batch and task.table not in history.last
    }
    history = batch_log.history({**since, **unproven}) if unproven else history
    return replace(history, newest_batch=max(history.newest_batch, spec.newest_batch))
