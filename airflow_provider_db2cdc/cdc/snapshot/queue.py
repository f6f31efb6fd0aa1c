"""The snapshot queue of a pipeline: its open snapshots, and the effect of each signal on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.selection.table_names import is_named
from airflow_provider_db2cdc.cdc.signal.request import (
    ChangeOffsets,
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    StopSnapshot,
    parse,
)
from airflow_provider_db2cdc.cdc.signal.signal import MAX_REASON, Signal, SignalOutcome, SignalStatus, SnapshotKind
from airflow_provider_db2cdc.cdc.signal.snapshot_request import requested_tables
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot, Status, snapshots_in_turn
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import MAX_FAILURES, TableSnapshot, with_failure, with_stop
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError

STOPPED = "stopped by a signal"
_USED = SignalError("its id was given before, to another signal", "Give each signal an id of its own.")


@dataclass(frozen=True)
class SnapshotQueue:
    """Snapshots in the order in which they were requested, and the known outcomes of signals.

    Of snapshots that are over and reported only the ids remain, as `closed_ids`. `initially_begun` has the tables of
    the initial ones.
    """

    snapshots: tuple[Snapshot, ...] = ()
    outcomes: Mapping[tuple[str, str], SignalOutcome] = field(default_factory=dict)
    closed_ids: frozenset[str] = frozenset()
    initially_begun: frozenset[TableId] = frozenset()

    @property
    def open(self) -> tuple[Snapshot, ...]:
        """The snapshots that are not over, the next one first."""
        return tuple(snapshot for snapshot in self.snapshots if snapshot.is_open)

    @property
    def used_ids(self) -> set[str]:
        """The ids that snapshots have or had."""
        return {*self.closed_ids, *(snapshot.id for snapshot in self.snapshots)}

    @property
    def initially_loading(self) -> set[TableId]:
        """The tables whose initial snapshot is under way."""
        initial = [snapshot for snapshot in self.open if snapshot.kind == "initial"]
        return {table for snapshot in initial for table in snapshot.open_table_ids}

    def has_begun(self, table: TableId, at_ms: int | None = None) -> bool:
        """Return whether an initial snapshot of the table was begun, with `at_ms` an unreported one by that plan."""
        if at_ms is None and table in self.initially_begun:
            return True
        initial = (snapshot for snapshot in self.snapshots if snapshot.kind == "initial")
        begun = (snapshot for snapshot in initial if at_ms in (None, snapshot.started_at_ms))
        return any(snapshot.table_snapshot(table) is not None for snapshot in begun)

    def is_waiting(self, requested: TableSnapshot) -> bool:
        """Return whether an initial snapshot like the requested one waits for the table, with nothing published."""
        snapshot, table = self.holder(requested.table), requested.table
        held = snapshot.table_snapshot(table) if snapshot is not None and snapshot.kind == "initial" else None
        if held is None or held.published_chunks:
            return False
        same = (held.delete_missing, held.select) == (requested.delete_missing, requested.select)
        return same and held.differences_only == requested.differences_only

    def holder(self, table: TableId) -> Snapshot | None:
        """Return the open snapshot whose turn it is with the table, None when no snapshot has work on it."""
        id_ = snapshots_in_turn(self.open).get(table)
        return next((snapshot for snapshot in self.open if snapshot.id == id_), None)

    def tables_in_turn(self, id_: str) -> frozenset[TableId]:
        """Return the tables whose turn belongs to a snapshot. Its other tables wait for an earlier snapshot."""
        return frozenset(table for table, holder in snapshots_in_turn(self.open).items() if holder == id_)

    def next_snapshot(self, tables: Container[TableId], excluded: Collection[str] = ()) -> Snapshot | None:
        """Return the snapshot to work on, without the `excluded` ids: new tables first, then in the requested order.

        A snapshot that only waits for others does not count. A blocking one waits for the turn of all its tables. The
        last ones are those that make no progress with `tables`, the pipeline's: they could use all time of each tick.
        """
        holders = snapshots_in_turn(self.open)
        running = [snapshot for snapshot in self.open if snapshot.status == "running" and snapshot.id not in excluded]
        in_turn = [snapshot for snapshot in running if _has_turn(snapshot, holders)]
        return min(
            in_turn,
            key=lambda snapshot: (snapshot.makes_no_progress(tables), snapshot.kind != "initial"),
            default=None,
        )

    def known_outcome(self, signal: Signal) -> SignalOutcome | None:
        """Return the outcome of the signal, None if no tick has acted on it yet."""
        outcome = self.outcomes.get((signal.channel, signal.id))
        is_same = outcome is None or outcome.asked == signal.asked
        return outcome if is_same else self.outcomes.get((signal.channel, signal.id_again))

    def with_snapshot(self, snapshot: Snapshot) -> SnapshotQueue:
        """Return the queue with this snapshot in place of the one with its id, or else at the end."""
        if all(old.id != snapshot.id for old in self.snapshots):
            return replace(self, snapshots=(*self.snapshots, snapshot))
        return replace(self, snapshots=tuple(snapshot if old.id == snapshot.id else old for old in self.snapshots))

    def with_outcome(self, outcome: SignalOutcome) -> SnapshotQueue:
        """Return the queue with the signal's outcome."""
        known = {**self.outcomes, (outcome.channel, outcome.id): outcome}
        return replace(self, outcomes=known)


def handle_signal(
    queue: SnapshotQueue,
    signal: Signal,
    tables: Mapping[TableId, str],
    check: Callable[[TableSnapshot], None],
    at_ms: int,
) -> tuple[SnapshotQueue, SignalOutcome]:
    """Return the queue after a signal, and the outcome. A signal that is already known changes nothing.

    `check` examines a table snapshot's condition, select and surrogate key at the source and raises SignalError.
    `tables` are the pipeline's, each with the reason why it cannot be read now, empty where it can. A request for a
    snapshot is `accepted` and ends with its snapshot. Other requests are `done`.
    """
    known = queue.known_outcome(signal)
    if known is not None:
        return queue, known
    if (signal.channel, signal.id) in queue.outcomes:
        return refuse_signal(queue, signal, _USED)
    try:
        request = parse(signal)
        if isinstance(request, ExecuteSnapshot):
            _check_unused(queue, signal)
            snapshot = _requested(queue, signal, request, requested_tables(request, tables, check), at_ms)
            return _answered(queue.with_snapshot(snapshot), signal, "accepted", _waits(queue, snapshot))
        after, reason = _act(queue, request)
        return _answered(after, signal, "done", reason)
    except Exception as error:
        # Many people can write to a channel: no error in a signal may end the tick.
        return refuse_signal(queue, signal, error)


def refuse_signal(queue: SnapshotQueue, signal: Signal, error: Exception) -> tuple[SnapshotQueue, SignalOutcome]:
    """Return the queue with a signal refused for an error, and its outcome. Another signal of its id keeps its own."""
    known = isinstance(error, SignalError)
    reason = (str(error) if known else f"it cannot be acted on ({type(error).__name__}: {error})")[:MAX_REASON]
    is_used = (signal.channel, signal.id) in queue.outcomes
    return _answered(queue, replace(signal, id=signal.id_again) if is_used else signal, "refused", reason)


def close_finished(queue: SnapshotQueue) -> tuple[SnapshotQueue, list[SignalOutcome]]:
    """Return the queue with the outcome of each accepted signal whose snapshot is over, and these outcomes.

    Before that, requested snapshots fail for tables whose initial snapshot makes no progress: that one is retried for
    ever.
    """
    queue, ended = _given_up(queue), list[SignalOutcome]()
    for snapshot in queue.snapshots:
        outcome = queue.outcomes.get((snapshot.channel, snapshot.id))
        if outcome is None or outcome.status != "accepted" or snapshot.is_open:
            continue
        status = "done" if snapshot.status == "completed" else snapshot.status
        assert status in ("done", "stopped", "failed")
        ended.append(replace(outcome, status=status, reason=snapshot.reason))
    for outcome in ended:
        queue = queue.with_outcome(outcome)
    return queue, ended


def add_initial(queue: SnapshotQueue, table_snapshots: Sequence[TableSnapshot], at_ms: int) -> SnapshotQueue:
    """Return the queue with an initial snapshot of tables, which end in the other snapshots."""
    for table_snapshot in table_snapshots:
        for snapshot in queue.open:
            if (old := snapshot.table_snapshot(table_snapshot.table)) is not None and old.is_open:
                queue = queue.with_snapshot(snapshot.with_table(with_stop(old, "its table is snapshotted again")))
    taken = queue.used_ids
    numbered = (f"initial-{number}" for number in count(len(taken) + 1))
    id_ = next(id_ for id_ in numbered if id_ not in taken)
    return queue.with_snapshot(Snapshot(id_, "initial", tuple(table_snapshots), started_at_ms=at_ms))


def _has_turn(snapshot: Snapshot, holders: Mapping[TableId, str]) -> bool:
    turns = [holders[table] == snapshot.id for table in snapshot.open_table_ids]
    return all(turns) if snapshot.kind == "blocking" else any(turns)


def _given_up(queue: SnapshotQueue) -> SnapshotQueue:
    """Return the queue after ending what waits for an initial snapshot's table without progress."""
    initial = [table for snapshot in queue.open if snapshot.kind == "initial" for table in snapshot.open_tables]
    failed = {loading.table: loading for loading in initial if loading.failures >= MAX_FAILURES}
    for snapshot in _requested_snapshots(queue, None):
        for waiting in snapshot.open_tables:
            if (loading := failed.get(waiting.table)) is not None:
                reason = f"its initial snapshot has failed {loading.failures} times: {loading.reason}"
                snapshot = snapshot.with_table(with_failure(waiting, reason, tries=1))
        queue = queue.with_snapshot(snapshot)
    return queue


def _answered(
    queue: SnapshotQueue, signal: Signal, status: SignalStatus, reason: str
) -> tuple[SnapshotQueue, SignalOutcome]:
    outcome = SignalOutcome(signal.id, signal.channel, status, reason, signal.asked)
    return queue.with_outcome(outcome), outcome


def _act(
    queue: SnapshotQueue, request: StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage | ChangeOffsets
) -> tuple[SnapshotQueue, str]:
    """Return the queue after a request, and a remark on what the request did not match."""
    match request:
        case StopSnapshot():
            return _stop(queue, request)
        case PauseSnapshot():
            return _turn(queue, "running", "paused", request.kind), ""
        case ResumeSnapshot():
            return _turn(queue, "paused", "running", request.kind), ""
        case LogMessage():
            return queue, ""
        case ChangeOffsets():
            raise request.misplaced


def _check_unused(queue: SnapshotQueue, signal: Signal) -> None:
    if signal.id in queue.used_ids:
        raise SignalError(f"a snapshot {signal.id!r} was requested before", "Give each signal an id of its own.")


def _requested(
    queue: SnapshotQueue, signal: Signal, request: ExecuteSnapshot, tables: tuple[TableSnapshot, ...], at_ms: int
) -> Snapshot:
    # With equal times the journal would not show which of two was requested first.
    later_ms = max((snapshot.started_at_ms + 1 for snapshot in _requested_snapshots(queue, None)), default=0)
    return Snapshot(signal.id, request.kind, tables, signal.channel, started_at_ms=max(at_ms, later_ms))


def _waits(queue: SnapshotQueue, snapshot: Snapshot) -> str:
    """Return which tables of a new snapshot wait for which others: of many the first ones and a count."""
    holders = snapshots_in_turn(queue.open)
    waiting = [
        f"{table} waits for snapshot {holders[table]!r}" for table in snapshot.open_table_ids if table in holders
    ]
    return shortened(waiting, separator="; ")


def _stop(queue: SnapshotQueue, request: StopSnapshot) -> tuple[SnapshotQueue, str]:
    snapshots = _requested_snapshots(queue, request.kind)
    if not snapshots:
        raise SignalError(f"no {_called(request.kind)} of a signal is running or waiting", "There is nothing to stop.")
    tables = {table for snapshot in snapshots for table in snapshot.open_table_ids}
    by_pattern = {pattern: {table for table in tables if is_named(pattern, table)} for pattern in request.collections}
    named = {table for matching in by_pattern.values() for table in matching} if by_pattern else tables
    idle = [repr(pattern) for pattern, matching in by_pattern.items() if not matching]
    reason = f"{', '.join(idle)}: no table of an open requested {_called(request.kind)}" if idle else ""
    if not named:
        raise SignalError(reason, f"Their tables are {shortened(sorted(tables))}.")
    for snapshot in snapshots:
        for table_snapshot in snapshot.tables:
            if table_snapshot.table in named:
                snapshot = snapshot.with_table(with_stop(table_snapshot, STOPPED))
        queue = queue.with_snapshot(snapshot)
    return queue, reason


def _turn(queue: SnapshotQueue, old: Status, new: Status, kind: SnapshotKind | None) -> SnapshotQueue:
    turned = [snapshot for snapshot in _requested_snapshots(queue, kind) if snapshot.status == old]
    if not turned:
        raise SignalError(f"no {_called(kind)} is {old}", f"There is nothing that could be {new}.")
    for snapshot in turned:
        queue = queue.with_snapshot(replace(snapshot, status=new))
    return queue


def _requested_snapshots(queue: SnapshotQueue, kind: SnapshotKind | None) -> list[Snapshot]:
    """Return the open snapshots that signals requested, of one kind where one is given."""
    requested = [snapshot for snapshot in queue.open if snapshot.kind != "initial"]
    return [snapshot for snapshot in requested if kind in (None, snapshot.kind)]


def _called(kind: SnapshotKind | None) -> str:
    return f"{kind} snapshot" if kind else "snapshot"
