"""Rows of the batch log and the journal that nothing needs any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_provider_db2cdc.cdc.table import TableId


@dataclass(frozen=True)
class LedgerTrim:
    """The rows of one table in the batch log and the commit log that may be deleted: those before batch `before`.

    `kept` are earlier batches that stay. They say which chunks were published last, that a plan has found an offset,
    and where the table's present history begins.
    """

    table: TableId
    before: int
    kept: frozenset[int] = frozenset()

    def deletes(self, batch: int) -> bool:
        """Return whether the rows of a batch may be deleted."""
        return batch < self.before and batch not in self.kept


def ledger_trim(table: TableId, horizon: int, last: int, kept: Mapping[str, int | None]) -> LedgerTrim | None:
    """Return the rows of a table to delete, None if there are none.

    Batches from the horizon on give a backfill its ranges. The last applied batch is the table's position. `kept` has
    other batches that stay, by the reason.
    """
    before = min(horizon, last)
    return (
        LedgerTrim(table, before, frozenset(batch for batch in kept.values() if batch is not None)) if before else None
    )


JournalKind = Literal["signal", "snapshot", "begun", "skipped", "bounds", "notification"]


@dataclass(frozen=True)
class JournalTrim:
    """What may be deleted of a journal: rows before `at_ms`, of which commits have reported up to `reported_seq`.

    The newest row of an id stays: by it a tick knows that the id was used. `open_ids` are the snapshots that a tick
    still reads: open ones, and those that no commit has reported.
    """

    at_ms: int
    reported_seq: int
    open_ids: frozenset[str]
    last_seq: int

    def deletes(self, row: JournalRow) -> bool:
        """Return whether a row may be deleted."""
        if row.at_ms >= self.at_ms or row.seq > self.reported_seq or row.seq == self.last_seq:
            return False
        if row.kind == "notification":
            return True
        return not row.is_newest or (row.kind == "bounds" and row.snapshot not in self.open_ids)


@dataclass(frozen=True)
class JournalRow:
    """A row of the journal. `is_newest`: no later row has its kind and id. `snapshot` is that of bounds."""

    seq: int
    kind: JournalKind
    at_ms: int
    is_newest: bool
    snapshot: str = ""
