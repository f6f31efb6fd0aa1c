"""What must hold in every history: the states, the change logs and the positions of tables in memory."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from support.memory_journal import MemoryJournal
from support.memory_pipeline import MemoryPipeline
from support.memory_source import lsn, number
from support.memory_target import Logged

from airflow_provider_db2cdc.cdc.event.change_event import Event, RowChange, events_of
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, begins, build_history
from airflow_provider_db2cdc.cdc.repair.pulled import PulledRanges, pulled_ranges
from airflow_provider_db2cdc.cdc.snapshot.heal import healed_tables
from airflow_provider_db2cdc.cdc.table import TableId
from histories.damage import Damage, Part, part_of


@dataclass
class Oracle:
    """The truth about a pipeline. `happened` has all change rows of the source, also those that were pruned since.

    `superseded` are tables that show a history of the source which a restore has undone. `trimmed` has the last commit
    of which a log was trimmed, since its table began.
    """

    pipeline: MemoryPipeline
    happened: Mapping[TableId, Sequence[RowChange]]
    damages: Mapping[TableId, Damage] = field(default_factory=dict)
    superseded: set[TableId] = field(default_factory=set)
    trimmed: dict[TableId, Lsn] = field(default_factory=dict)

    def history(self) -> BatchHistory:
        """Return the batches that are planned and applied."""
        target = self.pipeline.target
        return build_history(target.planned, target.applied)

    def loading(self) -> set[TableId]:
        """Return the tables whose initial snapshot is not over."""
        return MemoryJournal(self.pipeline.journal).read(sys.maxsize, sys.maxsize).initially_loading

    def healed(self) -> frozenset[TableId]:
        """Return the tables that an open heal compares as a whole."""
        return healed_tables(MemoryJournal(self.pipeline.journal).read(sys.maxsize, sys.maxsize))

    def snapshotted(self) -> set[TableId]:
        """Return the tables of open snapshots."""
        queue = MemoryJournal(self.pipeline.journal).read(sys.maxsize, sys.maxsize)
        return {table for snapshot in queue.open for table in snapshot.open_table_ids}

    def is_busy(self) -> bool:
        """Return whether a batch is pending or a snapshot is open."""
        queue = MemoryJournal(self.pipeline.journal).read(sys.maxsize, sys.maxsize)
        return bool(self.history().pending or queue.open)

    def complete(self) -> dict[TableId, AppliedBatch]:
        """Return the last batches of the tables whose state shows the source as of a commit."""
        history, loading = self.history(), self.loading()
        others = loading | self.superseded | {planned.table for planned in history.pending}
        return {table: last for table, last in history.last.items() if table not in others}

    def note_beginning(self, table: TableId) -> None:
        """Note that a table has begun again."""
        self.superseded.discard(table)
        self.trimmed.pop(table, None)

    def note_trim(self, table: TableId, horizon: LogHorizon, before: BatchHistory) -> None:
        """Note up to which commit a log was trimmed. The horizon itself has the greatest one of all histories."""
        begun = max((planned.batch for planned, _ in before.applied.get(table, ()) if begins(planned)), default=0)
        batches = [planned for planned, _ in before.applied.get(table, ()) if begun <= planned.batch < horizon.batch]
        self.trimmed[table] = max([self.trimmed.get(table, lsn(0)), *(planned.upto for planned in batches)])

    def pulled(self, table: TableId) -> PulledRanges:
        """Return what the table's batches have pulled since it began."""
        pulled = pulled_ranges([planned for planned, _ in self.history().applied[table]])
        assert pulled is not None
        return pulled

    def wrong_parts(self, table: TableId, commit: int) -> set[Part]:
        """Return what is not as it was at the source at a commit."""
        state, source = self.pipeline.images(table), self.pipeline.source.images(table, commit)
        return {part_of(row) for row in ((state - source) + (source - state))}

    def check(self) -> None:
        """Check every table whose state is complete."""
        for table, last in self.complete().items():
            wrong = self.wrong_parts(table, number(last.upto)) - self.damages[table].parts
            assert not wrong, f"{table} at commit {number(last.upto)}: {wrong}"
            self.check_log(table, last)

    def check_log(self, table: TableId, last: AppliedBatch) -> None:
        """Check that the log has each event of the source once and in order, except what was damaged."""
        pulled, damage = self.pulled(table), self.damages[table]
        log = [logged for logged in self.pipeline.target.log[table] if logged[0] <= last.batch]
        events = [(batch, event) for batch, step, event in log if step == "changes"]
        ids = [event_id(event) for batch, event in events if batch >= pulled.beginning.batch]
        after = max(pulled.beginning.after, self.trimmed.get(table, lsn(0)))
        span = LsnRange(after, last.upto)
        wanted = [event_id(event) for event in events_of(row for row in self.happened[table] if row.commit in span)]
        held = sorted([id_ for id_ in ids if id_[0] in span] + [event_id(event) for _, _, event in damage.lost])
        doubled = [event_id(event) for _, _, event in damage.doubled]
        assert held == sorted(wanted + [id_ for id_ in doubled if id_[0] in span]), f"events of {table}"
        places = [(batch, event.commit, event.intent) for batch, event in events]
        assert places == sorted(places), f"the log of {table} is not in order"
        if not (damage.lost or damage.doubled) and table not in self.pipeline.source.keyless:
            self._check_linear(table, [logged for logged in log if logged[0] >= pulled.beginning.batch])

    def _check_linear(self, table: TableId, log: Sequence[Logged]) -> None:
        """Check that each event of a key follows from the last one. Rows of snapshots may come again."""
        newest: dict[Hashable, Hashable | None] = {}
        for _, step, event in log:
            if step == "changes" and event.key in newest:
                assert newest[event.key] == narrowed(event.before), f"{table}: {event} after {newest[event.key]}"
            newest[event.key] = narrowed(event.after)


def narrowed(image: Hashable) -> Hashable:
    """Return an image without the null of a column that its table has gained."""
    return image[:-1] if isinstance(image, tuple) and image[-1] is None else image


def event_id(event: Event) -> tuple[Lsn, int, str]:
    """Return what names an event of the source."""
    return event.commit, event.intent, event.op
