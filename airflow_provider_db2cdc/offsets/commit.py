"""The commit of a tick: the offsets follow what is committed in Delta. Airflow and the command line share it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement, announce, confirm, count_events
from airflow_provider_db2cdc.cdc.offset.offset import Offset, OffsetStore, new_revision, restart_hint
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
        super().__init__(f"offsets of {', '.join(problems)} were not kept: {'; '.join(distinct)}", first.remedy)
        self.tables = frozenset(problems)


class Announcements:
    """The asset events of one commit. `pending` has those that Airflow does not have yet.

    `newest` asks Airflow for the newest announcement of a table in the change log of this id.
    """

    def __init__(self, newest: Callable[[TableId, str], Announcement | None]) -> None:
        self._newest = newest
        self.pending: dict[TableId, Announcement] = {}

    def after(self, table: TableResult, last: Announcement | None) -> Announcement | None:
        """Return a table's announcement after a result, and note it as pending if Airflow does not have it."""
        if last is not None and last.log_id != table.log_id:
            last = None
        is_unknown = (count_events(table) or table.rows) if last is None else not last.is_confirmed
        if is_unknown:
            last = confirm(last, self._newest(table.table, table.log_id))
        announced = announce(table, last)
        if announced is not None and not announced.is_confirmed:
            self.pending[table.table] = announced
        return announced


def record_signals_in_flight(spec: JobSpec | None, offsets: OffsetStore) -> None:
    """Store that a job carries signals. Signals of the signal table do not count.

    A job that dies may have begun what its signals ask for, and the signals of a run come only once. The next plan
    therefore has work until a result is committed.
    """
    if spec is not None and any(signal.channel != SOURCE_CHANNEL for signal in spec.signals):
        offsets.put_summary(replace(offsets.summary(), signals_in_flight_at_ms=spec.planned_at_ms))


@failpoint("commit_offsets")
def commit_tick(
    result: JobResult, offsets: OffsetStore, announcements: Announcements | None = None
) -> tuple[list[Offset], OffsetCommitError | None]:
    """Move the offsets of all tables to the LSNs that are committed in Delta.

    Return the offsets that moved, and an error for those that could not. An offset that lies beyond what this tick
    applied, or that cannot be read or stored, does not stop the others. The offset of a failed table moves too if an
    earlier crash had kept it back. If it is missing or ahead, an operator must act. A retry moves nothing.

    With `announcements`, each offset also gets the range of its table's next asset event, in the same write.

    The summary is stored first. The next tick continues the snapshots that are open in it, whatever the offsets are.

    :raises OffsetError: when the summary cannot be read or stored. No offset has moved then.
    """
    old = offsets.summary()
    if (new := old.updated(result)) != old:
        offsets.put_summary(new)
    moved: list[Offset] = []
    problems: dict[str, OffsetError] = {}
    for table in result.tables:
        try:
            offset = _move(table, offsets, result.planned_at_ms, announcements)
        except OffsetError as error:
            if announcements is not None:
                announcements.pending.pop(table.table, None)
            if table.status != "failed":
                problems[name_of(table.table)] = error
            continue
        if offset is not None:
            moved.append(offset)
    return moved, OffsetCommitError(problems) if problems else None


def record_reported(result: JobResult, offsets: OffsetStore, is_notified: bool) -> None:
    """Store up to which entry the journal was reported. The next tick reports what comes after it.

    The summary takes nothing from the result of an older plan. If such a result has extended the journal, the next plan
    has work, and its tick reports that. Notifications that could not be sent are sent again by the next tick. Outcomes
    of signals are reported once. A repair has not read the journal, and reports nothing of it.
    """
    if result.repair is not None:
        return
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


def _move(
    table: TableResult, offsets: OffsetStore, planned_at_ms: int, announcements: Announcements | None
) -> Offset | None:
    """Store the offset that a table's result gives, and return it if its LSN moved."""
    old = offsets.get(table.table)
    if table.lsn is None or table.batch is None or (old is not None and _is_overtaken(table, planned_at_ms, old)):
        return None
    if old is not None and old.restart and (_is_known(old, planned_at_ms) or _has_not_begun(table)):
        return None
    known = _known(table, old, announcements)
    unmoved = old is not None and old.lsn == table.lsn
    if unmoved and old == replace(known, batch=table.batch, restart=False, restore=False):
        return None
    if old is not None and table.rewound and not old.restart:
        # With `restart` the offset may move back. A crash after this line makes the table begin once more.
        offsets.put(old := replace(old, restart=True))
    # The restart was requested after the plan was made, so it is still to be done.
    is_new_restart = old is not None and old.restart and not table.restart and not table.rewound
    # With a new revision, a retry of this commit does not overwrite what an operator has set meanwhile.
    revision = new_revision() if table.capture_interrupted else table.revision
    offsets.put(
        new := replace(
            known,
            lsn=table.lsn,
            batch=table.batch,
            commit_lsn=_commit_lsn(table, old),
            commit_ts_ms=known.commit_ts_ms if table.commit_ts_ms is None else table.commit_ts_ms,
            restart=is_new_restart,
            restore=False,
            planned_at_ms=planned_at_ms,
            revision=revision,
        )
    )
    _log_taken(table, old)
    return None if unmoved else new


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
    """Whether the offset comes from a later plan, or has another revision than the plan saw."""
    return planned_at_ms < old.planned_at_ms or table.revision != old.revision


def _is_known(old: Offset, planned_at_ms: int) -> bool:
    """Whether the offset already has this tick's result. A restart in it was then requested after that."""
    return 0 < old.planned_at_ms == planned_at_ms


def _has_not_begun(table: TableResult) -> bool:
    return table.status == "failed" and table.after is None
