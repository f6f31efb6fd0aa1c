"""The offsets of a pipeline as a plan sees them: what commits have stored, and what is requested since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from airflow_provider_db2cdc.cdc.lsn import WIDTHS, Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.plan_record import PlanRecord
from airflow_provider_db2cdc.cdc.offset.request import (
    NOTHING,
    RemoveOffset,
    Request,
    Requests,
    Restart,
    Restore,
    SetOffset,
    TableRequests,
    revision_text,
    revisions_in,
)
from airflow_provider_db2cdc.cdc.offset.stored import StoredOffsets
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError


@dataclass(frozen=True)
class PipelineOffsets:
    """The documents of a pipeline at one moment. `summary_text` is kept under `summary_where`."""

    stored: StoredOffsets
    requests: Requests
    summary_text: str | None
    summary_where: str

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset with what is requested of it, or None if there is neither.

        A request also replaces an offset that cannot be read.

        :raises OffsetError: when the offset or the request cannot be read.
        """
        requested = self.requests.entry(table)
        try:
            stored = self.stored.get(table)
        except OffsetError:
            if requested.request is None:
                raise
            stored = None
        return self._requested(table, stored, requested)

    def all(self) -> Mapping[TableId, Offset]:
        """Return the offsets of all tables.

        :raises OffsetError: when one of them cannot be read.
        """
        if self.stored.error is not None:
            raise self.stored.error
        tables = sorted({*self.stored.tables, *self.requests.tables})
        return {table: offset for table in tables if (offset := self.get(table)) is not None}

    @cached_property
    def stored_summary(self) -> PipelineSummary:
        """The summary that the last commit stored, an empty one if there is none.

        :raises OffsetError: when it cannot be read.
        """
        if self.summary_text is None:
            return PipelineSummary()
        return PipelineSummary.from_json(self.summary_text, self.summary_where)

    def summary(self) -> PipelineSummary:
        """Return the summary with what plans have recorded since the last commit.

        :raises OffsetError: when it cannot be read.
        """
        return self.requests.plan.added_to(self.stored_summary)

    def is_damaged(self, table: TableId) -> bool:
        """Return whether the table's offset or its request cannot be read."""
        try:
            self.get(table)
        except OffsetError:
            return True
        return False

    def pending(self, table: TableId) -> TableRequests:
        """Return what is requested of a table and no commit has consumed. An entry that cannot be read is nothing."""
        try:
            requested = self.requests.entry(table)
            stored = self.stored.get(table)
        except OffsetError:
            return self._unread(table)
        if stored is None and isinstance(requested.request, RemoveOffset):
            requested = replace(requested, request=None)
        return requested.pending(revisions_in("" if stored is None else stored.revision))

    def without_consumed(self) -> Requests:
        """Return the requests that no commit has consumed."""
        entries: dict[TableId, TableRequests] = {}
        for table in self.requests.tables:
            try:
                old = self.requests.entry(table)
            except OffsetError:
                continue
            if (pending := self.pending(table)) != old:
                entries[table] = pending
        return self.requests.updated(entries) if entries else self.requests

    def recorded(self, revision: str, **values: Any) -> Requests:
        """Return the requests with these values in what plans have recorded since the last commit."""
        old = PlanRecord() if self.requests.plan.is_in(self.stored_summary) else self.requests.plan
        return replace(self.requests, plan=replace(old, revision=revision, **values))

    def _unread(self, table: TableId) -> TableRequests:
        try:
            return self.requests.entry(table)
        except OffsetError:
            return NOTHING

    def _requested(self, table: TableId, stored: Offset | None, requested: TableRequests) -> Offset | None:
        pending = requested.pending(revisions_in("" if stored is None else stored.revision))
        if pending == NOTHING:
            return stored
        # A request needs no position. But an LSN is only comparable with LSNs of the same length.
        empty = Offset(table, Lsn(bytes(self._width)), 0)
        offset = _after(pending.request, stored or empty, empty)
        return replace(
            offset,
            capture_interrupted=offset.capture_interrupted or bool(pending.capture_interrupted),
            source_restored=offset.source_restored or bool(pending.source_restored),
            revision=revision_text(requested.revisions),
        )

    @cached_property
    def _width(self) -> int:
        for table in self.stored.tables:
            try:
                offset = self.stored.get(table)
            except OffsetError:
                continue
            if offset is not None:
                return len(offset.lsn.raw)
        return max(WIDTHS)


def _after(request: Request | None, offset: Offset, empty: Offset) -> Offset:
    """Return an offset with a request. A restart and a restore keep what is known of lost changes."""
    match request:
        case Restart():
            return replace(offset, restart=True)
        case Restore():
            return replace(offset, restore=True)
        case RemoveOffset():
            return empty
        case SetOffset(lsn=lsn, set_at_ms=at_ms, batch=batch):
            # The committed LSN stays, so that an offset beyond it is noticed.
            return replace(
                empty,
                lsn=lsn,
                batch=offset.batch if batch is None else batch,
                commit_ts_ms=offset.commit_ts_ms,
                planned_at_ms=at_ms,
                committed_lsn=offset.committed_lsn,
                announced=offset.announced,
            )
        case None:
            return offset
