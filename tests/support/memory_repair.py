"""Repairs of a target in memory, by the plain rules. The time of a commit is its number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from airflow_provider_db2cdc.cdc.event.change_event import Event, events_of
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.repair.coverage import Coverage, check_replayable, find_coverage
from airflow_provider_db2cdc.cdc.repair.pulled import PulledRanges, pulled_ranges
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.ports import TableBatch
from support.memory_maintenance import log_horizon
from support.memory_rows import folded_by_copies, folded_by_key
from support.memory_source import MemorySource, Row, changes_in_columns, lsn, number
from support.memory_target import Logged, MemoryTarget

Corrections = Mapping[Hashable, tuple[Row, int] | None]


@dataclass(frozen=True)
class MemoryComparison:
    """What the log lacks, and what the state must be set to."""

    added: list[Logged]
    corrections: Corrections
    found: Findings


def compare_table(target: MemoryTarget, source: MemorySource, batch: TableBatch) -> MemoryComparison:
    """Compare a table with its log, and its log with the change table."""
    table, planned = batch.task.table, batch.planned
    assert planned.repair is not None
    work, horizon = planned.repair.repair, log_horizon(target, table)
    log = [logged for logged in target.log[table] if horizon.batch <= logged[0] < planned.batch]
    if not isinstance(work, Backfill):
        check_replayable(table, horizon)
        corrections, keys = _corrections(target, batch, log, None)
        return MemoryComparison([], corrections, replace(_counts(log), keys=keys, rows_corrected=len(corrections)))
    pulled = _pulled(target, table)
    covered = _coverage(target, batch, work, pulled)
    added, found = _missing_events(target, source, batch, covered, pulled)
    for entry in added:
        log.insert(_place(log, entry), entry)
    interval = [logged for logged in log if work.holds(logged[2].commit, number(logged[2].commit))]
    touched = [event for _, _, event in interval]
    corrections, keys = _corrections(target, batch, log, touched)
    corrections = corrections if covered.compares_rows else {}
    found = replace(found, keys=keys, rows_corrected=len(corrections))
    counts = _counts(interval)
    return MemoryComparison(added, corrections, replace(found, commits=counts.commits, events=counts.events))


class Writer(Protocol):
    """The writes of a repair."""

    @property
    def target(self) -> MemoryTarget:
        """The target."""

    @property
    def source(self) -> MemorySource:
        """The source."""

    def append_late(self, table: TableId, batch: int, added: list[Logged]) -> bool:
        """Put events under their batches, once."""

    def merge_corrections(self, table: TableId, batch: int, corrections: Corrections) -> bool:
        """Set and delete rows of the state, once."""


def apply_repair(writer: Writer, batch: TableBatch) -> tuple[AppliedBatch, bool]:
    """Append what the log lacks, then correct the state.

    Return the applied batch with the versions before it, and whether this try was the first one to come so far.
    """
    table, planned, last = batch.task.table, batch.planned, batch.last
    assert last is not None
    assert planned.repair is not None
    compared = compare_table(writer.target, writer.source, batch)
    writer.append_late(table, planned.batch, compared.added)
    is_written = writer.merge_corrections(table, planned.batch, compared.corrections)
    # The added events stand under other batches.
    counted = replace(last, creates=0, updates=0, deletes=0, reads=0)
    kept = replace(counted, snapshot=None, chunk_range=None, published={}, repair=planned.repair.repair.type)
    as_of_ms = max(last.as_of_ms, planned.planned_at_ms)
    return replace(kept, batch=planned.batch, rows=len(writer.target.state[table]), as_of_ms=as_of_ms), is_written


def put_late(target: MemoryTarget, table: TableId, added: list[Logged]) -> None:
    """Put events into a log, each at its place."""
    for entry in added:
        target.log[table].insert(_place(target.log[table], entry), entry)


def _pulled(target: MemoryTarget, table: TableId) -> PulledRanges | None:
    applied = {each.batch for each in target.applied if each.table == table}
    return pulled_ranges([each for each in target.planned if each.table == table and each.batch in applied])


def _coverage(target: MemoryTarget, batch: TableBatch, work: Backfill, pulled: PulledRanges | None) -> Coverage:
    task, last = batch.task, batch.last
    assert last is not None
    upto = last.upto if last.capture == task.capture.identity else None
    beginning = None if pulled is None else pulled.beginning
    return find_coverage(work, beginning, log_horizon(target, task.table), upto, bool(task.schema.key))


def _missing_events(
    target: MemoryTarget, source: MemorySource, batch: TableBatch, covered: Coverage, pulled: PulledRanges | None
) -> tuple[list[Logged], Findings]:
    table, span = batch.task.table, covered.span
    assert batch.planned.repair is not None
    work = batch.planned.repair.repair
    if pulled is None or span is None or not isinstance(work, Backfill):
        return [], Findings(note=covered.note)
    changes = changes_in_columns(batch.task.schema, source.captured_changes(table, span))
    events = {_id(event): event for event in events_of(changes) if work.holds(event.commit, number(event.commit))}
    logged = Counter(
        _id(event)
        for at, step, event in target.log[table]
        if step == "changes" and covered.pulled_since <= at < batch.planned.batch and _is_in(work, span, event)
    )
    floor = lsn(source.pruned.get(table, 0))
    lacking = [event for id_, event in events.items() if id_ not in logged]
    found = Findings(
        events_added=len(lacking),
        events_only_in_log=sum(id_ not in events and floor < id_[0] for id_ in logged),
        events_doubled=sum(logged.values()) - len(logged),
        comparable_since_ms=max(work.begin_ms, number(floor), number(span.after)),
        note=covered.note,
    )
    return [(_batch(pulled, event), "changes", event) for event in lacking], found


def _batch(pulled: PulledRanges, event: Event) -> int:
    batch = pulled.covering(event.commit)
    assert batch is not None
    return batch


def _is_in(work: Backfill, span: LsnRange, event: Event) -> bool:
    return event.commit in span and work.holds(event.commit, number(event.commit))


def _id(event: Event) -> tuple[Lsn, int, str]:
    return (event.commit, event.intent, event.op)


def _place(log: list[Logged], entry: Logged) -> int:
    """Return where an event of the source belongs in the log: by batch, commit and intent, before a snapshot's."""
    own = (entry[0], False, entry[2].commit, entry[2].intent)
    later = (index for index, other in enumerate(log) if _order(other) > own[: len(_order(other))])
    return next(later, len(log))


def _order(logged: Logged) -> tuple[object, ...]:
    batch, step, event = logged
    return (batch, False, event.commit, event.intent) if step == "changes" else (batch, True)


def _counts(log: list[Logged]) -> Findings:
    events = {_id(event) for _, step, event in log if step == "changes"}
    return Findings(commits=len({commit for commit, *_ in events}), events=len(events))


def _distinct(log: list[Logged]) -> Iterator[Logged]:
    """Yield the log without copies of events. Equal rows that a snapshot read are no copies."""
    seen: set[Logged] = set()
    for logged in log:
        if logged not in seen or logged[1] != "changes":
            yield logged
        seen.add(logged)


def _corrections(
    target: MemoryTarget, batch: TableBatch, log: list[Logged], events: list[Event] | None
) -> tuple[Corrections, int]:
    """Return what the state must be set to for the keys or images of these events, None for all, and their number."""
    state, is_keyed = target.state[batch.task.table], bool(batch.task.schema.key)
    expected = (folded_by_key if is_keyed else folded_by_copies)(_distinct(log))

    def part(key: Hashable) -> Hashable:
        return key if is_keyed else key[0]  # type: ignore[index]

    among = [event for _, _, event in log] if events is None else events
    images = {image for event in among for image in (event.before, event.after) if image is not None}
    touched = {event.key for event in among} if is_keyed else images
    keys = {key for key in expected.keys() | state.keys() if events is None or part(key) in touched}
    differing = {key for key in keys if (state[key][0] if key in state else None) != _image(expected.get(key))}
    return {key: expected.get(key) for key in differing}, len(touched)


def _image(row: tuple[Row, int] | None) -> Row | None:
    return None if row is None else row[0]
