"""Repairs of a target in memory, by the plain rules. The time of a commit is its number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from airflow_provider_db2cdc.cdc.event.change_event import Event, events_of
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.repair.pulled import PulledRanges, pulled_ranges
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.ports import TableBatch
from support.memory_rows import folded_by_copies, folded_by_key
from support.memory_source import MemorySource, Row, lsn, number
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
    work = planned.repair.repair
    log = [logged for logged in target.log[table] if logged[0] < planned.batch]
    if not isinstance(work, Backfill):
        corrections, keys = _corrections(target, batch, log, None)
        return MemoryComparison([], corrections, replace(_counts(log), keys=keys, rows_corrected=len(corrections)))
    added, found = _missing_events(target, source, batch, work)
    for entry in added:
        log.insert(_place(log, entry), entry)
    interval = [logged for logged in log if work.holds(logged[2].commit, number(logged[2].commit))]
    corrections, keys = _corrections(target, batch, log, [event for _, _, event in interval])
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


def apply_repair(writer: Writer, batch: TableBatch) -> AppliedBatch:
    """Append what the log lacks, then correct the state. Return the applied batch with the versions before it."""
    table, planned, last = batch.task.table, batch.planned, batch.last
    assert last is not None
    assert planned.repair is not None
    compared = compare_table(writer.target, writer.source, batch)
    writer.append_late(table, planned.batch, compared.added)
    writer.merge_corrections(table, planned.batch, compared.corrections)
    ops = Counter(event.op for _, _, event in compared.added)
    counted = replace(last, creates=ops["c"], updates=ops["u"], deletes=ops["d"], reads=0)
    kept = replace(counted, snapshot=None, chunk_range=None, published={}, repair=planned.repair.repair.type)
    return replace(kept, batch=planned.batch, rows=len(writer.target.state[table]))


def put_late(target: MemoryTarget, table: TableId, added: list[Logged]) -> None:
    """Put events into a log, each at its place."""
    for entry in added:
        target.log[table].insert(_place(target.log[table], entry), entry)


def _missing_events(
    target: MemoryTarget, source: MemorySource, batch: TableBatch, work: Backfill
) -> tuple[list[Logged], Findings]:
    table, last = batch.task.table, batch.last
    assert last is not None
    applied = {each.batch for each in target.applied if each.table == table}
    pulled = pulled_ranges([each for each in target.planned if each.table == table and each.batch in applied])
    after = max(work.after or lsn(0), lsn(0) if pulled is None else pulled.after)
    upto = min(work.upto or last.upto, last.upto)
    if pulled is None or upto <= after or last.capture != batch.task.capture.identity:
        return [], Findings()
    changes = source.captured_changes(table, LsnRange(after, upto))
    events = {_id(event): event for event in events_of(changes) if work.holds(event.commit, number(event.commit))}
    logged = Counter(
        _id(event)
        for at, step, event in target.log[table]
        if step == "changes" and pulled.begun <= at < batch.planned.batch and _is_in(work, after, upto, event)
    )
    floor = lsn(source.pruned.get(table, 0))
    lacking = [event for id_, event in events.items() if id_ not in logged]
    found = Findings(
        events_added=len(lacking),
        events_only_in_log=sum(id_ not in events and floor < id_[0] for id_ in logged),
        events_doubled=sum(logged.values()) - len(logged),
        comparable_since_ms=max(work.begin_ms, number(floor), number(pulled.after)),
    )
    return [(_batch(pulled, event), "changes", event) for event in lacking], found


def _batch(pulled: PulledRanges, event: Event) -> int:
    batch = pulled.covering(event.commit)
    assert batch is not None
    return batch


def _is_in(work: Backfill, after: Lsn, upto: Lsn, event: Event) -> bool:
    return after < event.commit <= upto and work.holds(event.commit, number(event.commit))


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

    touched = {part(key) for key in expected.keys() | state.keys()}
    if events is not None:
        images = {image for event in events for image in (event.before, event.after) if image is not None}
        touched = {event.key for event in events} if is_keyed else images
    keys = {key for key in expected.keys() | state.keys() if part(key) in touched}
    differing = {key for key in keys if (state[key][0] if key in state else None) != _image(expected.get(key))}
    return {key: expected.get(key) for key in differing}, len(touched)


def _image(row: tuple[Row, int] | None) -> Row | None:
    return None if row is None else row[0]
