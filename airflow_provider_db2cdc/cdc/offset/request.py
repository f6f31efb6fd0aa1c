"""The document of requests: what operators ask of offsets, and what plans and sensors find out.

Commits never write it. A commit consumes a request by storing the request's revision in the offset of its table. So a
request that comes while a commit runs is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from airflow_provider_db2cdc.cdc.codec import from_data
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.plan_record import PlanRecord
from airflow_provider_db2cdc.cdc.offset.stored import compact, document_text, entry_name, parse_document, tables_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

REVISION = re.compile(r"\S+")


@dataclass(frozen=True)
class Restart:
    """Snapshot the table again, and replace its state."""

    revision: str
    type: Literal["restart"] = "restart"


@dataclass(frozen=True)
class Restore:
    """Take the position that the target has committed."""

    revision: str
    type: Literal["restore"] = "restore"


@dataclass(frozen=True)
class SetOffset:
    """Continue after this LSN. `set_at_ms` is the time of the request. Without a `batch` the offset's batch stays."""

    revision: str
    lsn: Lsn
    set_at_ms: int
    batch: int | None = None
    type: Literal["set"] = "set"


@dataclass(frozen=True)
class RemoveOffset:
    """Forget the offset."""

    revision: str
    type: Literal["remove"] = "remove"


Request: TypeAlias = Restart | Restore | SetOffset | RemoveOffset


@dataclass(frozen=True)
class TableRequests:
    """The newest request of one table, and the revisions of what was found out about it.

    `capture_interrupted`: its registration was inactive. `source_restored`: the source has another history than the
    applied one.
    """

    request: Request | None = None
    capture_interrupted: str = ""
    source_restored: str = ""

    @property
    def revisions(self) -> frozenset[str]:
        """The revisions that it has."""
        asked = "" if self.request is None else self.request.revision
        return frozenset({asked, self.capture_interrupted, self.source_restored} - {""})

    def pending(self, consumed: Collection[str]) -> TableRequests:
        """Return what of it is pending after a commit has consumed these revisions."""
        return TableRequests(
            None if self.request is None or self.request.revision in consumed else self.request,
            "" if self.capture_interrupted in consumed else self.capture_interrupted,
            "" if self.source_restored in consumed else self.source_restored,
        )


NOTHING = TableRequests()


@dataclass(frozen=True)
class Requests:
    """What operators, plans and sensors have written. `where` names the document in messages.

    `entries` holds JSON data by the tables' names. `plan` is what plans record of the pipeline as a whole.
    """

    where: str
    entries: Mapping[str, Any] = field(default_factory=dict)
    plan: PlanRecord = field(default_factory=PlanRecord)

    @classmethod
    def parse(cls, text: str | None, where: str) -> Requests:
        """Read the document. A missing one requests nothing.

        :raises OffsetError: when the document as a whole cannot be read. Nobody knows then what was requested.
        """
        try:
            data = parse_document(text)
            return cls(where, data.get("tables", {}), from_data(PlanRecord, data.get("plan", {})))
        except (ValueError, ConfigurationError) as error:
            raise OffsetError(
                f"the requests kept in {where} cannot be read ({type(error).__name__}: {error})",
                "Correct it. Or delete it, and repeat the requests of restarts and restores that no tick has acted on.",
            ) from error

    def entry(self, table: TableId) -> TableRequests:
        """Return what is requested of a table.

        :raises OffsetError: when its entry cannot be read.
        """
        data = self.entries.get(entry_name(table))
        if data is None:
            return NOTHING
        try:
            found: TableRequests = from_data(TableRequests, data)
            for revision in found.revisions | ({""} if found.request and not found.request.revision else set[str]()):
                if not REVISION.fullmatch(revision):
                    raise ConfigurationError(f"the revision {revision!r} is empty or has blanks")
        except (ConfigurationError, OffsetError) as error:
            raise OffsetError(
                f"the request of {table} kept in {self.where} cannot be read ({type(error).__name__}: {error})",
                "Request it again with `db2cdc offset`, or delete the table's entry.",
            ) from error
        return found

    @property
    def tables(self) -> list[TableId]:
        """The tables that have an entry."""
        return tables_of(self.entries)

    def updated(self, tables: Mapping[TableId, TableRequests]) -> Requests:
        """Return the document with these entries. A table of which nothing is requested has none."""
        names = {entry_name(table): entry for table, entry in tables.items()}
        kept = {name: data for name, data in self.entries.items() if name not in names}
        return replace(self, entries=kept | {name: _entry(entry) for name, entry in names.items() if entry != NOTHING})

    def to_text(self) -> str:
        """Return the text to be kept, with a line for each table."""
        return document_text({"plan": compact(self.plan)}, self.entries)


def _entry(entry: TableRequests) -> dict[str, Any]:
    data = compact(entry)
    return (
        data if entry.request is None else {**data, "request": {"type": entry.request.type, **compact(entry.request)}}
    )


def revision_text(revisions: Collection[str]) -> str:
    """Return several revisions as one text."""
    return " ".join(sorted(revisions))


def revisions_in(text: str) -> frozenset[str]:
    """Return the revisions that a text holds."""
    return frozenset(text.split())
