"""Maintenance of a target in memory: its logs are trimmed by the plain rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_db2cdc.cdc.maintenance.ledger_trim import JournalRow, JournalTrim, LedgerTrim, ledger_trim
from airflow_provider_db2cdc.cdc.maintenance.retention import LogAge, LogHorizon, find_horizon, log_needs
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch, begins, build_history
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError
from support.memory_journal import JournalRows, MemoryJournal
from support.memory_target import MemoryTarget

TRIMMED = ("trimmed", None, None)
"""What stands for a deleted row of the journal: the rows after it keep their numbers."""


def log_horizon(target: MemoryTarget, table: TableId) -> LogHorizon:
    """Return the horizon of a table's change log."""
    return target.horizons.get(table, LogHorizon())


def trim_log(target: MemoryTarget, table: TableId, horizon: LogHorizon) -> int:
    """Delete the events of batches before the horizon, and return how many there were."""
    with target.lock:
        kept = [logged for logged in target.log[table] if logged[0] >= horizon.batch]
        deleted = len(target.log[table]) - len(kept)
        target.horizons[table], target.log[table] = horizon, kept
        return deleted


def maintain(target: MemoryTarget, journal: JournalRows, reported_seq: int, cutoff_ms: int) -> list[str]:
    """Trim everything that is older than a time. Return the errors of tables whose open snapshots need more."""
    errors = []
    with target.lock, journal.lock:
        snapshots = MemoryJournal(journal).read(reported_seq, reported_seq).snapshots
        for table in [*target.log]:
            try:
                _trim_table(target, table, snapshots, cutoff_ms)
            except ConfigurationError as error:
                errors.append(str(error))
        _trim_ledger(target)
        _trim_journal(journal, snapshots, reported_seq)
    return errors


def _trim_table(target: MemoryTarget, table: TableId, snapshots: Sequence[Snapshot], cutoff_ms: int) -> None:
    history = build_history(target.planned, target.applied)
    applied = history.applied.get(table, ())
    if not applied:
        return
    young = [planned.batch for planned, _ in applied if planned.planned_at_ms >= cutoff_ms]
    age = LogAge(applied[-1][1].batch, min(young, default=None))
    published = history.chunk_ranges[table][0] if table in history.chunk_ranges else None
    wanted = find_horizon(table, age, log_needs(table, snapshots, published, history.pending, None))
    if wanted > (horizon := log_horizon(target, table)).batch:
        trim_log(target, table, horizon.moved(wanted, [batch.upto for _, batch in applied if batch.batch < wanted]))


def _trim_ledger(target: MemoryTarget) -> None:
    history = build_history(target.planned, target.applied)
    first = min((planned.batch for planned in target.planned), default=None)
    trims: dict[TableId, LedgerTrim] = {}
    for table, last in history.last.items():
        chunks = history.chunk_ranges[table][1].batch if table in history.chunk_ranges else None
        with_offset = [planned.batch for planned in target.planned if planned.table == table and planned.has_offset]
        begun = [planned.batch for planned, _ in history.applied[table] if begins(planned)]
        kept = {
            "chunks": chunks,
            "offset": max(with_offset, default=None),
            "begun": max(begun, default=None),
            "first": first,
        }
        trim = ledger_trim(table, log_horizon(target, table).batch, last.batch, kept)
        trims |= {} if trim is None else {table: trim}
    target.planned[:] = [row for row in target.planned if not _is_trimmed(trims, row)]
    target.applied[:] = [row for row in target.applied if not _is_trimmed(trims, row)]


def _is_trimmed(trims: Mapping[TableId, LedgerTrim], row: PlannedBatch | AppliedBatch) -> bool:
    return row.table in trims and trims[row.table].deletes(row.batch)


def _trim_journal(journal: JournalRows, snapshots: Sequence[Snapshot], reported_seq: int) -> None:
    newest = {(kind, id_): seq for seq, (kind, id_, _) in enumerate(journal.rows, 1)}
    open_ids = frozenset(snapshot.id for snapshot in snapshots)
    trim = JournalTrim(1, reported_seq, open_ids, len(journal.rows))
    for seq, (kind, id_, _) in enumerate(journal.rows, 1):
        if kind != TRIMMED[0] and trim.deletes(JournalRow(seq, kind, 0, newest[kind, id_] == seq)):  # type: ignore[arg-type]
            journal.rows[seq - 1] = TRIMMED
