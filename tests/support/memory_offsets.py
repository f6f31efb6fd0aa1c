"""Offsets in memory: the store of the command line and of Airflow on texts in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_db2cdc.cdc.offset.offset import Offset, new_revision
from airflow_provider_db2cdc.cdc.offset.request import Request, Requests, Restart, Restore, TableRequests
from airflow_provider_db2cdc.cdc.offset.store import Committed
from airflow_provider_db2cdc.cdc.offset.stored import entry_name
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.offsets.file import FileOffsetStore
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore, MemoryTexts


class ArrangedOffsets(KeyedOffsetStore):
    """A store of which a test sees single offsets, and in which it arranges them."""

    def get(self, table: TableId) -> Offset | None:
        """Return a table's offset with what is requested of it."""
        return self.read().get(table)

    def has(self, table: TableId) -> bool:
        """Return whether a commit has stored an offset of the table."""
        return self.read().stored.get(table) is not None

    def put(self, *offsets: Offset) -> None:
        """Arrange offsets as a plan is to see them, with the requests that they have."""
        moved = {each.table: replace(each, restart=False, restore=False) for each in offsets}
        entries = {each.table: _requests(each) for each in offsets}
        stored = {
            table: each if entries[table] == TableRequests() else replace(each, revision="")
            for table, each in moved.items()
        }
        assert self.commit(lambda seen: Committed(seen.stored.updated(stored), seen.summary())) is None
        self.put_requests(lambda seen: seen.requests.updated(entries))

    def put_summary(self, summary: PipelineSummary) -> None:
        """Arrange the summary, with all that plans have recorded."""

        def change(seen: PipelineOffsets) -> Committed:
            return Committed(seen.stored, replace(summary, plan_revision=seen.requests.plan.revision))

        self.commit(change)

    def all(self) -> Mapping[TableId, Offset]:
        """Return the offsets of all tables."""
        return self.read().all()

    def lose(self, table: TableId) -> Offset:
        """Lose a table's offset, and what was requested of it. Return the offset."""
        lost = self.get(table)
        assert lost is not None, f"{table} has no offset"
        self.commit(lambda seen: Committed(seen.stored.updated({}, [table]), seen.summary()))
        self.put_requests(lambda seen: seen.requests.updated({table: TableRequests()}))
        return lost

    def damage(self, table: TableId) -> None:
        """Have a table's offset unreadable."""

        def change(seen: PipelineOffsets) -> Committed:
            entries = {**seen.stored.entries, entry_name(table): {"lsn": 5}}
            return Committed(replace(seen.stored, entries=entries), seen.summary())

        self.commit(change)

    def request(self, table: TableId, request: Request) -> None:
        """Request something of a table, as an operator does."""

        def change(seen: PipelineOffsets) -> Requests:
            return seen.requests.updated({table: replace(seen.pending(table), request=request)})

        self.put_requests(change)


def _requests(offset: Offset) -> TableRequests:
    revision = offset.revision or new_revision()
    if offset.restart:
        return TableRequests(Restart(revision))
    return TableRequests(Restore(revision) if offset.restore else None)


class MemoryOffsets(ArrangedOffsets):
    """A store in memory."""

    def __init__(self, *offsets: Offset, summary: PipelineSummary | None = None) -> None:
        super().__init__(MemoryTexts())
        self._read_texts: tuple[str | None, ...] = ()
        if summary is not None:
            self.put_summary(summary)
        if offsets:
            self.put(*offsets)

    def read(self) -> PipelineOffsets:
        """Return all documents. They are parsed once."""
        texts = (*self.read_texts().values(),)
        if texts != self._read_texts:
            self._read_texts, self._last_read = texts, super().read()
        return self._last_read

    def summary(self) -> PipelineSummary:
        """Return the summary."""
        return self.read().summary()


class FileOffsets(ArrangedOffsets, FileOffsetStore):
    """A store in files."""
