"""The commit of a tick: the offsets follow what is committed in Delta. Airflow and the command line share it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult
from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement, announce, confirm, count_events
from airflow_provider_db2cdc.cdc.offset.offset import Offset, check_forward, new_revision, restart_hint
from airflow_provider_db2cdc.cdc.offset.request import RemoveOffset, revision_text, revisions_in
from airflow_provider_db2cdc.cdc.offset.store import CommitStore, Committed, RequestStore
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError, SignalError, TickFailedError
from airflow_provider_db2cdc.failpoint import failpoint

log = logging.getLogger(__name__)


class OffsetCommitError(OffsetError):
    """Raised when offsets could not be stored. `tables` holds the names of their tables."""

    def __init__(self, problems: Mapping[str, OffsetError]) -> None:
        distinct = dict.fromkeys(error.problem for error in problems.values())
        first = next(iter(problems.values()))
        reasons = shortened(distinct, separator="; ")
        super().__init__(f"offsets of {shortened(problems)} were not kept: {reasons}", first.remedy)
        self.tables = frozenset(problems)


class Announcements:
    """The asset events of one commit. `pending` has those that Airflow does not have yet.

    `newest` asks Airflow for the newest announcement of a table in the change log of this id. `recent` asks for the
    newest of many tables at once, by table and log, given how many tables there are to ask for.
    """

    def __init__(
        self,
        newest: Callable[[TableId, str], Announcement | None],
        recent: Callable[[int], Mapping[tuple[TableId, str], Announcement]] | None = None,
    ) -> None:
        self._newest = newest
        self._recent = recent
        self._found: Mapping[tuple[TableId, str], Announcement] = {}
        self.pending: dict[TableId, Announcement] = {}

    def expect(self, offsets: Iterable[Offset | None]) -> None:
        """Ask at once for the announcements of these offsets that Airflow is not known to have."""
        last = [offset.announced for offset in offsets if offset is not None]
        unknown = sum(announced is not None and not announced.is_confirmed for announced in last)
        if unknown and self._recent is not None:
            self._found = self._recent(unknown)

    def after(self, table: TableResult, last: Announcement | None) -> Announcement | None:
        """Return a table's announcement after a result, and note it as pending if Airflow does not have it.

        Airflow is asked too if the offset is older than the target. An operator may have put back an older text of it,
        while Airflow has the events that came since.
        """
        if last is not None and last.log_id != table.log_id:
            last = None
        is_confirmed = last is not None and last.is_confirmed and not table.has_unreported
        if not is_confirmed and (last is not None or count_events(table) or table.rows):
            last = confirm(last, self._known(table, last))
        announced = announce(table, last)
        if announced is not None and not announced.is_confirmed:
            self.pending[table.table] = announced
        return announced

    def _known(self, table: TableResult, last: Announcement | None) -> Announcement | None:
        found = self._found.get((table.table, table.log_id))
        if last is not None and found is not None and last.to_batch <= found.to_batch:
            return found
        return self._newest(table.table, table.log_id)


def record_signals_in_flight(spec: JobSpec | None, offsets: RequestStore) -> None:
    """Store that a job carries signals. Signals of the signal table do not count.

    A job that dies may have begun what its signals ask for, and the signals of a run come only once. The next plan
    therefore has work until a result is committed.
    """
    if spec is not None and any(signal.channel != SOURCE_CHANNEL for signal in spec.signals):
        revision, at_ms = new_revision(), spec.planned_at_ms
        offsets.put_requests(lambda seen: seen.recorded(revision, signals_in_flight_at_ms=at_ms))


@failpoint("commit_offsets")
def commit_tick(
    result: JobResult, offsets: CommitStore, announcements: Announcements | None = None
) -> tuple[list[Offset], OffsetCommitError | None]:
    """Move the offsets of all tables to the LSNs that are committed in Delta.

    Return the offsets that moved, and an error for those that could not. An offset that lies beyond what this tick
    applied, or that cannot be read, does not stop the others. The offset of a failed table moves too if an earlier
    crash had kept it back. If it is missing or ahead, an operator must act. A retry moves nothing.

    With `announcements`, each offset also gets the range of its table's next asset event, in the same write.

    The summary is stored first. The next tick continues the snapshots that are open in it, whatever the offsets are.

    :raises OffsetError: when the summary cannot be read or stored. No offset has moved then.
    """
    commit = _Commit(result, announcements)
    error = offsets.commit(commit.change)
    if error is not None:
        commit.problems |= {name_of(offset.table): error for offset in commit.moved}
        commit.moved.clear()
        if announcements is not None:
            announcements.pending.clear()
    return commit.moved, OffsetCommitError(commit.problems) if commit.problems else None


def record_reported(result: JobResult, offsets: CommitStore, is_notified: bool) -> None:
    """Store up to which entry the journal was reported. The next tick reports what comes after it.

    The summary takes nothing from the result of an older plan. If such a result has extended the journal, the next plan
    has work, and its tick reports that. Notifications that could not be sent are sent again by the next tick. Outcomes
    of signals are reported once. A repair has not read the journal, and reports nothing of it.
    """
    if result.repair is None:
        offsets.commit(lambda seen: Committed(seen.stored, _reported(result, seen.summary(), is_notified)))


def _reported(result: JobResult, summary: PipelineSummary, is_notified: bool) -> PipelineSummary:
    if result.planned_at_ms >= summary.planned_at_ms:
        notified = None if is_notified else summary.notified_upto
        return replace(summary, reported_seq=result.reported_seq, notified_seq=notified)
    if result.reported_seq > summary.reported_seq:
        return replace(summary, signals_in_flight_at_ms=summary.planned_at_ms)
    return summary


def raise_for_failures(result: JobResult) -> None:
    """Raise an error for the failed tables of a tick or a repair. Call it last, after all that succeeded is stored.

    :raises TickFailedError: when tables failed. It lists each table with its error.
    """
    if not result.failed:
        return
    what = "failed (the others are committed, the next tick takes these up where they stand)"
    if result.repair is not None:
        what = "were not repaired (the others are; run it again for these)"
    listed = "\n".join(f"  {table.table}: {table.error.removeprefix(f'{table.table}: ')}" for table in result.failed)
    raise TickFailedError(f"{len(result.failed)} of {len(result.tables)} tables {what}:\n{listed}")


def raise_for_signals(result: JobResult, channel: str) -> None:
    """Raise an error for the signals of a channel that were refused or failed. Everything else is committed.

    :raises SignalError: when there are such signals. It lists each with its id and reason.
    """
    bad = [signal for signal in result.signals if signal.channel == channel and signal.status in ("refused", "failed")]
    if bad:
        listed = "\n".join(f"  {signal.id} {signal.status}: {signal.reason}" for signal in bad)
        raise SignalError(f"{len(bad)} signal(s) did not come to their end (the tick itself is committed):\n{listed}")


class _Commit:
    """The offsets and the summary after a result: those that `moved`, and the `problems` by the tables' names."""

    def __init__(self, result: JobResult, announcements: Announcements | None) -> None:
        self._result = result
        self._announcements = announcements
        self.moved: list[Offset] = []
        self.problems: dict[str, OffsetError] = {}

    def change(self, seen: PipelineOffsets) -> Committed:
        """Return what the documents hold after the result."""
        summary, kept = seen.summary().updated(self._result), dict[TableId, Offset]()
        if self._announcements is not None:
            tables = [table.table for table in self._result.tables if table.lsn is not None]
            self._announcements.expect(seen.get(table) for table in tables if not seen.is_damaged(table))
        for table in self._result.tables:
            try:
                offset = self._kept(table, seen)
            except OffsetError as error:
                if self._announcements is not None:
                    self._announcements.pending.pop(table.table, None)
                if table.status != "failed":
                    self.problems[name_of(table.table)] = error
                continue
            kept |= {} if offset is None else {table.table: offset}
        return Committed(seen.stored.updated(kept, self._removed(seen)), summary)

    def _kept(self, table: TableResult, seen: PipelineOffsets) -> Offset | None:
        """Return the offset that a table's result gives, None if it stays as it is."""
        old, planned_at_ms = seen.get(table.table), self._result.planned_at_ms
        if table.lsn is None or table.batch is None or (old is not None and _is_overtaken(table, planned_at_ms, old)):
            return None
        if old is not None and old.restart and _has_not_begun(table):
            return None
        known = _known(table, old, self._announcements)
        unmoved = old is not None and old.lsn == table.lsn
        if unmoved and old == replace(known, batch=table.batch, restart=False, restore=False):
            return None
        new = replace(
            known,
            lsn=table.lsn,
            batch=table.batch,
            commit_lsn=_commit_lsn(table, old),
            commit_ts_ms=known.commit_ts_ms if table.commit_ts_ms is None else table.commit_ts_ms,
            restart=False,
            restore=False,
            planned_at_ms=planned_at_ms,
            revision=_revision(table, seen),
        )
        if not table.rewound:
            check_forward(old, new)
        _log_taken(table, old)
        if not unmoved:
            self.moved.append(new)
        return new

    def _removed(self, seen: PipelineOffsets) -> list[TableId]:
        """Return the tables that are not in the pipeline any more, and whose offsets an operator has removed."""
        carried = {table.table for table in self._result.tables}
        others = (table for table in seen.requests.tables if table not in carried)
        return [table for table in others if isinstance(seen.pending(table).request, RemoveOffset)]


def _revision(table: TableResult, seen: PipelineOffsets) -> str:
    """Return the revisions that the plan has seen. So the commit consumes their requests, and no others.

    With one more revision, a run that was planned without this tick's finding does not change the offset.
    """
    if not table.capture_interrupted:
        return table.revision
    current = seen.requests.entry(table.table).revisions & revisions_in(table.revision)
    return revision_text({*current, new_revision()})


def _log_taken(table: TableResult, old: Offset | None) -> None:
    """Log that an offset is now the one that the target has committed, because it was missing or to be restored."""
    if old is not None and old.restore:
        log.info("the offset of %s is restored from the target: %s -> %s", table.table, old.lsn, table.lsn)
    if table.offset_recovered and old is None:
        _warn_of_recovery(table)


def _warn_of_recovery(table: TableResult) -> None:
    log.warning(
        "the offset of %s was missing: it is taken from the target, %s. If a restart was asked for in it, or its "
        "registration was not active meanwhile, have it snapshotted again by %s",
        table.table,
        table.lsn,
        restart_hint(table.table),
    )


def _known(table: TableResult, old: Offset | None, announcements: Announcements | None) -> Offset:
    """Return the table's offset with its old LSN, and with the facts that the result brings."""
    assert table.lsn is not None
    offset = old or Offset(table.table, table.lsn, 0)
    last = offset.announced
    return replace(
        offset,
        announced=last if announcements is None else announcements.after(table, last),
        capture=table.capture,
        committed_lsn=table.lsn,
        capture_interrupted=table.capture_interrupted or (offset.capture_interrupted and not table.reinitialized),
        source_restored=offset.source_restored and not table.reinitialized,
    )


def _commit_lsn(table: TableResult, old: Offset | None) -> Lsn | None:
    """Return the commit that later plans look up in the source.

    It is None if an operator set the offset, until a change is applied. A restored offset has the target's.
    """
    is_set = old is not None and old.commit_lsn is None and not old.restore
    return None if is_set and not (table.creates or table.updates or table.deletes) else table.commit_lsn


def _is_overtaken(table: TableResult, planned_at_ms: int, old: Offset) -> bool:
    """Whether the offset comes from a later plan, or has other revisions than the plan saw."""
    return planned_at_ms < old.planned_at_ms or table.revision != old.revision


def _has_not_begun(table: TableResult) -> bool:
    return table.status == "failed" and table.after is None
