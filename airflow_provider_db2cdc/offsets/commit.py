"""What a tick keeps, the same for Airflow and the command line: that it begins, and what Delta proved as offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset, OffsetStore, new_revision, restart_hint
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL
from airflow_provider_db2cdc.errors import OffsetError, SignalError, TickFailedError
from airflow_provider_db2cdc.failpoint import failpoint

log = logging.getLogger(__name__)


class OffsetCommitError(OffsetError):
    """What is wrong with offsets that could not be kept; `tables` names whose they are."""

    def __init__(self, problems: Mapping[str, OffsetError]) -> None:
        told = dict.fromkeys(error.problem for error in problems.values())
        first = next(iter(problems.values()))
        super().__init__(f"offsets of {', '.join(problems)} were not kept: {'; '.join(told)}", first.remedy)
        self.tables = frozenset(problems)


def record_signals_in_flight(spec: JobSpec | None, offsets: OffsetStore) -> None:
    """Keep that a job takes signals along, but for a table's: where it dies, it may have begun what they ask for.

    A run's signals come but once; so it is work for the next plan until a result is told.
    """
    if spec is not None and any(one.channel != SOURCE_CHANNEL for one in spec.signals):
        offsets.put_summary(replace(offsets.summary(), signals_in_flight_at_ms=spec.planned_at_ms))


@failpoint("commit_offsets")
def commit_tick(result: JobResult, offsets: OffsetStore) -> tuple[list[Offset], OffsetCommitError | None]:
    """Move the offsets of all tables to where Delta proved them; return those that moved, and what kept others from it.

    An offset that lies beyond what this tick applied, or cannot be read or kept, keeps no other from moving.

    A failed table's offset follows too when an earlier crash had left it behind, but one that is missing or ahead waits
    for a person. Doing it again moves nothing. The summary comes first: what is told there as open is gone on with,
    whatever the offsets are.

    :raises OffsetError: the summary cannot be read or kept. No offset has moved.
    """
    old = offsets.summary()
    if (new := old.updated(result)) != old:
        offsets.put_summary(new)
    moved: list[Offset] = []
    problems: dict[str, OffsetError] = {}
    for table in result.tables:
        try:
            offset = _step(table, offsets, result.planned_at_ms)
        except OffsetError as error:
            if table.status != "failed":
                problems[name_of(table.table)] = error
            continue
        if offset is not None:
            moved.append(offset)
    return moved, OffsetCommitError(problems) if problems else None


def record_reported(result: JobResult, offsets: OffsetStore, is_notified: bool) -> None:
    """Keep how far the journal has been told, once it has been: what comes after this is told by the next tick.

    So is what an older plan's result tells, of which the summary took nothing: where the journal has gone on by it,
    that is work for the next plan. And notifications that could not be sent, but what became of signals is told once.
    """
    summary = offsets.summary()
    after = summary
    if result.planned_at_ms >= summary.planned_at_ms:
        after = replace(
            summary, reported_seq=result.reported_seq, notified_seq=None if is_notified else summary.notified_upto
        )
    elif result.reported_seq > summary.reported_seq:
        after = replace(summary, signals_in_flight_at_ms=summary.planned_at_ms)
    if after != summary:
        offsets.put_summary(after)


def raise_for_failures(result: JobResult) -> None:
    """Say that a tick failed when a table of it did; called last, after everything that succeeded is kept.

    :raises TickFailedError: with each failed table's name and error.
    """
    if not result.failed:
        return
    listed = "\n".join(f"  {table.table}: {table.error.removeprefix(f'{table.table}: ')}" for table in result.failed)
    raise TickFailedError(
        f"{len(result.failed)} of {len(result.tables)} tables failed (the others are committed, the next tick takes "
        f"these up where they stand):\n{listed}"
    )


def raise_for_signals(result: JobResult, channel: str) -> None:
    """Say that what was asked for by a channel was refused or failed; everything else is committed.

    :raises SignalError: with each signal's id and reason.
    """
    bad = [one for one in result.signals if one.channel == channel and one.status in ("refused", "failed")]
    if bad:
        listed = "\n".join(f"  {one.id} {one.status}: {one.reason}" for one in bad)
        raise SignalError(f"{len(bad)} signal(s) did not come to their end (the tick itself is committed):\n{listed}")


def _step(table: TableResult, offsets: OffsetStore, planned_at_ms: int) -> Offset | None:
    old = offsets.get(table.table)
    if table.lsn is None or table.batch is None or (old is not None and _is_overtaken(table, planned_at_ms, old)):
        return None
    if old is not None and old.restart and (_is_known(old, planned_at_ms) or _has_not_begun(table)):
        return None
    known = _known(table, old)
    unmoved = old is not None and old.lsn == table.lsn
    if unmoved and old == replace(known, restart=False):
        return None
    if old is not None and table.rewound and not old.restart:
        # From now on it may move back; whoever dies here leaves a table that begins anew once more.
        offsets.put(old := replace(old, restart=True))
    # A wish that the plan did not know of yet.
    is_new_wish = old is not None and old.restart and not table.restart and not table.rewound
    # Done again, it would say so of what a person has set meanwhile.
    mark = new_revision() if table.capture_interrupted else table.revision
    offsets.put(
        new := replace(
            known,
            lsn=table.lsn,
            batch=table.batch,
            commit_lsn=_commit_lsn(table, old),
            commit_ts_ms=known.commit_ts_ms if table.commit_ts_ms is None else table.commit_ts_ms,
            restart=is_new_wish,
            planned_at_ms=planned_at_ms,
            revision=mark,
        )
    )
    if table.offset_recovered and old is None:
        log.warning(
            "the offset of %s was missing: it is taken from the target, %s. If a restart was asked for in it, or its "
            "registration was not active meanwhile, have it snapshotted anew by %s",
            table.table,
            table.lsn,
            restart_hint(table.table),
        )
    return None if unmoved else new


def _known(table: TableResult, old: Offset | None) -> Offset:
    """Return the table's offset, where it is, with what the result knows of that place."""
    assert table.lsn is not None
    at = old or Offset(table.table, table.lsn, 0)
    return replace(
        at,
        capture=table.capture,
        committed_lsn=table.lsn,
        capture_interrupted=table.capture_interrupted or (at.capture_interrupted and not table.reinitialized),
        source_restored=at.source_restored and not table.reinitialized,
    )


def _commit_lsn(table: TableResult, old: Offset | None) -> Lsn | None:
    """Return the commit to look up from now on: none where a person set the offset, until a change is applied."""
    is_set = old is not None and old.commit_lsn is None
    return None if is_set and not (table.creates or table.updates or table.deletes) else table.commit_lsn


def _is_overtaken(table: TableResult, planned_at_ms: int, old: Offset) -> bool:
    """Whether the offset is of a later plan, or was marked since this one was made."""
    return planned_at_ms < old.planned_at_ms or table.revision != old.revision


def _is_known(old: Offset, planned_at_ms: int) -> bool:
    """Whether a tick's own result is in the offset already: what is wished for there came after it."""
    return 0 < old.planned_at_ms == planned_at_ms


def _has_not_begun(table: TableResult) -> bool:
    return table.status == "failed" and table.after is None
