"""The commits of runs as Airflow does them: offsets move, and asset events exist only where the task succeeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from support.memory_offsets import MemoryOffsets

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.offsets.commit import Announcements, commit_tick, record_reported


@dataclass
class Airflow:
    """The asset events that Airflow has, by table and in order. A consumer reads each up to its last batch.

    `committing` are the commits under way. Two at once may announce the same events, because Airflow emits them late.
    """

    offsets: MemoryOffsets
    consume: Callable[[TableId, int], None]
    events: dict[TableId, list[Announcement]] = field(default_factory=lambda: defaultdict(list))
    committing: int = 0
    has_overlapped: bool = False

    def commit(self, result: JobResult, is_failed: bool = False) -> None:
        """Commit a result. The events of a task that is marked failed are lost."""
        announcements = Announcements(self._newest)
        self.has_overlapped |= self.committing > 0
        self.committing += 1
        try:
            _, problem = commit_tick(result, self.offsets, announcements)
        finally:
            self.committing -= 1
        if is_failed:
            return
        self._emit(announcements.pending)
        record_reported(result, self.offsets, is_notified=True)
        # The run of an older plan may have applied more after this result. Its commit came first, and the offset stays.
        if problem is not None and "would move back" not in str(problem):
            raise problem

    def _emit(self, pending: Mapping[TableId, Announcement]) -> None:
        for table, announcement in pending.items():
            self.events[table].append(replace(announcement, is_confirmed=True))
            self.consume(table, announcement.to_batch)

    def _newest(self, table: TableId, log_id: str) -> Announcement | None:
        return max(self.events[table], key=lambda event: event.to_batch, default=None)

    def check(self, newest: Mapping[TableId, int]) -> None:
        """Check that a table's events follow each other without a hole, from its first batch to its `newest` event."""
        for table, batch in newest.items():
            events = self.events[table]
            assert events, f"{table} has no asset event up to batch {batch}"
            end = 0
            for event in events:
                assert event.from_batch <= end, f"a hole between the asset events of {table}"
                assert event.from_batch == end or self.has_overlapped, f"asset events of {table} have batches twice"
                # Of two commits at once the later one may emit first.
                end = max(end, event.to_batch)
            assert end >= batch, f"{table}: the asset events end at {end} before {batch}"
