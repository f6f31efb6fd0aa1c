"""The agenda of a pipeline: its open snapshots, and what each signal makes of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from airflow_provider_db2cdc.cdc.selection.table_names import is_named
from airflow_provider_db2cdc.cdc.signal.request import (
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    Request,
    ResumeSnapshot,
    StopSnapshot,
    parse,
)
from airflow_provider_db2cdc.cdc.signal.signal import MAX_REASON, Signal, SignalOutcome, SignalStatus, SnapshotKind
from airflow_provider_db2cdc.cdc.signal.snapshot_request import requested_tables
from airflow_provider_db2cdc.cdc.snapshot.snapshot import LISTED, Snapshot, Status, snapshots_in_turn
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import MAX_FAILURES, TableSnapshot, with_failure, with_stop
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError

STOPPED = "stopped by a signal"
_USED = SignalError("its id was given before, to another signal", "Give each signal an id of its own.")


@dataclass(frozen=True)
class SnapshotQueue:
    """Snapshots in the order in which they were asked for, and the outcomes of signals that are known.

    Of those that are over and told of only the ids are kept, as `closed_ids`, and of which tables an initial one was
    `initially_begun`.
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
        return {part.table for snapshot in initial for part in snapshot.open_tables}

    def has_begun(self, table: TableId, at_ms: int | None = None) -> bool:
        """Whether an initial snapshot of the table was ever begun; or by the plan of a time, not told of yet."""
        if at_ms is None and table in self.initially_begun:
            return True
        begun = (one for one in self.snapshots if one.kind == "initial" and at_ms in (None, one.started_at_ms))
        return any(one.table_snapshot(table) is not None for one in begun)

    def is_waiting(self, asked: TableSnapshot) -> bool:
        """Whether an initial snapshot of the table waits that has published nothing, and is what is asked for."""
        snapshot = self.holder(asked.table)
        part = snapshot.table_snapshot(asked.table) if snapshot is not None and snapshot.kind == "initial" else None
        if part is None or part.published_chunks or not {*asked.abandoned_batches} <= {*part.abandoned_batches}:
            return False
        return (part.delete_missing, part.select) == (asked.delete_missing, asked.select)

    def holder(self, table: TableId) -> Snapshot | None:
        """Return the open snapshot whose turn it is with the table, None when no one has anything to do for it."""
        id_ = snapshots_in_turn(self.open).get(table)
        return next((one for one in self.open if one.id == id_), None)

    def tables_in_turn(self, id_: str) -> frozenset[TableId]:
        """Return the tables with which it is a snapshot's turn: of each other one an earlier snapshot is not over."""
        return frozenset(table for table, holder in snapshots_in_turn(self.open).items() if holder == id_)

    def next_snapshot(self, tables: Container[TableId], besides: Collection[str] = ()) -> Snapshot | None:
        """Return the snapshot to be worked on, of those of other ids: new tables first, then in the order asked.

        One that only waits for others is none of them; a blocking one has no turn before all its tables have. After all
        others comes what never gets on with `tables`, the pipeline's, which could take up each tick's time.
        """
        held = snapshots_in_turn(self.open)
        running = [one for one in self.open if one.status == "running" and one.id not in besides]
        in_turn = [one for one in running if _has_turn(one, held)]
        return min(in_turn, key=lambda one: (one.makes_no_progress(tables), one.kind != "initial"), default=None)

    def known_outcome(self, signal: Signal) -> SignalOutcome | None:
        """Return what became of the signal; None if nobody has acted on it yet."""
        of_id = self.outcomes.get((signal.channel, signal.id))
        is_same = of_id is None or of_id.asked == signal.asked
        return of_id if is_same else self.outcomes.get((signal.channel, signal.id_again))

    def with_snapshot(self, snapshot: Snapshot) -> SnapshotQueue:
        """Return the agenda with this snapshot in the place of the one of its id, or behind the others."""
        if all(old.id != snapshot.id for old in self.snapshots):
            return replace(self, snapshots=(*self.snapshots, snapshot))
        return replace(self, snapshots=tuple(snapshot if old.id == snapshot.id else old for old in self.snapshots))

    def with_outcome(self, outcome: SignalOutcome) -> SnapshotQueue:
        """Return the agenda that knows the signal's outcome."""
        known = {**self.outcomes, (outcome.channel, outcome.id): outcome}
        return replace(self, outcomes=known)


def handle_signal(
    queue: SnapshotQueue,
    signal: Signal,
    tables: Mapping[TableId, str],
    check: Callable[[TableSnapshot], None],
    at_ms: int,
) -> tuple[SnapshotQueue, SignalOutcome]:
    """Return the agenda after a signal, and what became of the signal; one that is known already changes nothing.

    `check` looks at each part's condition or select and surrogate key at the source and raises SignalError; `tables`
    are the pipeline's, each with why it cannot be read now, empty where it can. A request for a snapshot is `accepted`,
    and has its end when its snapshot has; the others are `done`.
    """
    known = queue.known_outcome(signal)
    if known is not None:
        return queue, known
    if (signal.channel, signal.id) in queue.outcomes:
        return refuse_signal(queue, signal, _USED)
    try:
        request = parse(signal)
        after, reason = _act(queue, signal, request, tables, check, at_ms)
        status: SignalStatus = "accepted" if isinstance(request, ExecuteSnapshot) else "done"
    except Exception as error:
        # Whoever may write to a channel writes a signal: whatever is wrong with it, it must not end the tick.
        return refuse_signal(queue, signal, error)
    return _answered(after, signal, status, reason)


def refuse_signal(queue: SnapshotQueue, signal: Signal, error: Exception) -> tuple[SnapshotQueue, SignalOutcome]:
    """Return the agenda with a signal refused for an error, and its outcome; another signal of its id keeps its own."""
    known = isinstance(error, SignalError)
    reason = (str(error) if known else f"it cannot be acted on ({type(error).__name__}: {error})")[:MAX_REASON]
    is_used = (signal.channel, signal.id) in queue.outcomes
    return _answered(queue, replace(signal, id=signal.id_again) if is_used else signal, "refused", reason)


def close_finished(queue: SnapshotQueue) -> tuple[SnapshotQueue, list[SignalOutcome]]:
    """Return the agenda with the outcome of each accepted signal whose snapshot is over, and these outcomes.

    Before, what waits for an initial snapshot's table that never gets on has failed: that is tried for ever.
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


def add_initial(queue: SnapshotQueue, parts: Sequence[TableSnapshot], at_ms: int) -> SnapshotQueue:
    """Return the agenda with an initial snapshot of tables; they are given up in the other snapshots.

    What batches had told that were left when that one began is still to be looked for.
    """
    begun = []
    for part in parts:
        left = {*part.abandoned_batches}
        for other in queue.open:
            if (before := other.table_snapshot(part.table)) is not None and before.is_open:
                queue = queue.with_snapshot(other.with_table(with_stop(before, "its table is snapshotted anew")))
                left |= {*before.abandoned_batches}
        begun.append(replace(part, abandoned_batches=tuple(sorted(left))))
    taken = queue.used_ids
    numbered = (f"initial-{number}" for number in count(len(taken) + 1))
    id_ = next(id_ for id_ in numbered if id_ not in taken)
    return queue.with_snapshot(Snapshot(id_, "initial", tuple(begun), started_at_ms=at_ms))


def _has_turn(snapshot: Snapshot, held: Mapping[TableId, str]) -> bool:
    turns = [held[table] == snapshot.id for table in snapshot.open_table_ids]
    return all(turns) if snapshot.kind == "blocking" else any(turns)


def _given_up(queue: SnapshotQueue) -> SnapshotQueue:
    """Return the agenda in which nothing waits for an initial snapshot's table that never gets on."""
    parts = [part for one in queue.open if one.kind == "initial" for part in one.open_tables]
    vain = {part.table: part for part in parts if part.failures >= MAX_FAILURES}
    for snapshot in [one for one in queue.open if one.kind != "initial"]:
        for part in snapshot.open_tables:
            if (other := vain.get(part.table)) is not None:
                reason = f"its initial snapshot has failed {other.failures} times: {other.reason}"
                snapshot = snapshot.with_table(with_failure(part, reason, tries=1))
        queue = queue.with_snapshot(snapshot)
    return queue


def _answered(
    queue: SnapshotQueue, signal: Signal, status: SignalStatus, reason: str
) -> tuple[SnapshotQueue, SignalOutcome]:
    outcome = SignalOutcome(signal.id, signal.channel, status, reason, signal.asked)
    return queue.with_outcome(outcome), outcome


def _act(
    queue: SnapshotQueue,
    signal: Signal,
    request: Request,
    tables: Mapping[TableId, str],
    check: Callable[[TableSnapshot], None],
    at_ms: int,
) -> tuple[SnapshotQueue, str]:
    """Return the agenda after a request, and what of the request named nothing."""
    match request:
        case ExecuteSnapshot():
            snapshot = _asked(queue, signal, request, tables, check, at_ms)
            return queue.with_snapshot(snapshot), _waits(queue, snapshot)
        case StopSnapshot():
            return _stop(queue, request)
        case PauseSnapshot():
            return _turn(queue, "running", "paused", request.kind), ""
        case ResumeSnapshot():
            return _turn(queue, "paused", "running", request.kind), ""
        case LogMessage():
            return queue, ""


def _asked(
    queue: SnapshotQueue,
    signal: Signal,
    request: ExecuteSnapshot,
    tables: Mapping[TableId, str],
    check: Callable[[TableSnapshot], None],
    at_ms: int,
) -> Snapshot:
    if signal.id in queue.used_ids:
        raise SignalError(f"a snapshot {signal.id!r} was asked for before", "Give each signal an id of its own.")
    parts = requested_tables(request, tables, check)
    # Of two of one moment the journal would not know which was asked for first.
    later_ms = max(
        (one.started_at_ms + 1 for one in queue.snapshots if one.is_open and one.kind != "initial"), default=0
    )
    return Snapshot(signal.id, request.kind, parts, signal.channel, started_at_ms=max(at_ms, later_ms))


def _waits(queue: SnapshotQueue, snapshot: Snapshot) -> str:
    """Return which tables of a new snapshot wait for which others; of many the first ones and a count."""
    held = snapshots_in_turn(queue.open)
    waiting = [f"{table} waits for snapshot {held[table]!r}" for table in snapshot.open_table_ids if table in held]
    more = [f"and {len(waiting) - LISTED} more"] if len(waiting) > LISTED else []
    return "; ".join(waiting[:LISTED] + more)


def _stop(queue: SnapshotQueue, request: StopSnapshot) -> tuple[SnapshotQueue, str]:
    asked = _asked_for(queue, request.kind)
    if not asked:
        raise SignalError(
            f"no {_called(request.kind)} that was asked for is running or waiting", "There is nothing to stop."
        )
    tables = {part.table for snapshot in asked for part in snapshot.open_tables}
    found = {pattern: {table for table in tables if is_named(pattern, table)} for pattern in request.collections}
    named = {table for group in found.values() for table in group} if found else tables
    idle = [repr(pattern) for pattern, group in found.items() if not group]
    reason = f"{', '.join(idle)}: no table of any open {_called(request.kind)} that was asked for" if idle else ""
    if not named:
        raise SignalError(reason, f"The tables of such are {', '.join(map(str, sorted(tables)[:LISTED]))}.")
    for snapshot in asked:
        for part in snapshot.tables:
            if part.table in named:
                snapshot = snapshot.with_table(with_stop(part, STOPPED))
        queue = queue.with_snapshot(snapshot)
    return queue, reason


def _turn(queue: SnapshotQueue, one: Status, other: Status, kind: SnapshotKind | None) -> SnapshotQueue:
    turned = [snapshot for snapshot in _asked_for(queue, kind) if snapshot.status == one]
    if not turned:
        raise SignalError(f"no {_called(kind)} is {one}", f"There is nothing that could be {other}.")
    for snapshot in turned:
        queue = queue.with_snapshot(replace(snapshot, status=other))
    return queue


def _asked_for(queue: SnapshotQueue, kind: SnapshotKind | None) -> list[Snapshot]:
    """Return the open snapshots that signals asked for, of one kind where one is given."""
    asked = [snapshot for snapshot in queue.open if snapshot.kind != "initial"]
    return [snapshot for snapshot in asked if kind in (None, snapshot.kind)]


def _called(kind: SnapshotKind | None) -> str:
    return f"{kind} snapshot" if kind else "snapshot"
