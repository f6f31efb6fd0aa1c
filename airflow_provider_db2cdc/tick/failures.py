"""The tables that failed in a tick."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import RegistrationError
from airflow_provider_db2cdc.tick.log import describe, log_progress, log_stack


class TableFailures:
    """The tables that failed in a tick, and why.

    Both threads of a snapshot add to it: the one that reads and the one that publishes. So every access takes the lock.
    """

    def __init__(self, rejected: Mapping[TableId, str]) -> None:
        self._lock = Lock()
        self._errors = dict(rejected)
        self._interrupted: set[TableId] = set()

    @property
    def errors(self) -> Mapping[TableId, str]:
        """The error of each failed table, as of now."""
        with self._lock:
            return dict(self._errors)

    @property
    def capture_interrupted(self) -> frozenset[TableId]:
        """The tables whose registration was found inactive. Once active again it looks as if it always was."""
        with self._lock:
            return frozenset(self._interrupted)

    def add(self, table: TableId, error: Exception) -> None:
        """Exclude a table for the rest of the tick, and report it with this error."""
        reason = describe(error)
        with self._lock:
            self._errors[table] = reason
            if isinstance(error, RegistrationError):
                self._interrupted.add(table)
        log_progress(f"table={table} failed: {reason}")
        log_stack(error)
