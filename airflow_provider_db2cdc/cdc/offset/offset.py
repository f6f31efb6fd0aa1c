"""Offsets: what is durably in the target, as the store keeps it and as Delta proves it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import uuid4

from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

VERSION = 1
CLOCKS_DIFFER_MS = 3_600_000
"""A time that lies further ahead is that of a wrong clock."""

MARK_CHARS = 12

PLAIN = re.compile(r"\w+\.\w+", re.ASCII)
"""A table's name that a shell takes as it is."""


@dataclass(frozen=True)
class Offset:
    """Every change up to `lsn` of one table is in the target, the last of them by `batch`.

    `commit_lsn` and `commit_ts_ms` are the newest applied commit and its time at the source, None before the first one.
    `committed_lsn` is the `lsn` that the last result left: a person who sets the offset leaves it as it is. `capture`
    is the digest of the capture identity under which `lsn` was reached, empty where a person wrote the offset.
    `restart` is what a person sets to have the table snapshotted anew, its state replaced. `planned_at_ms` is when the
    tick was planned that got there, or when a person set it by `db2cdc offset`; 0 where a person wrote the document.
    `capture_interrupted` says that a plan since then, or a tick, found the registration inactive: nobody captured what
    changed meanwhile. `source_restored` says that a plan found another history at the source than the one that was
    applied. `revision` names what was last found or asked for so: a tick that was planned without it leaves the offset
    alone, whatever clocks say.
    """

    table: TableId
    lsn: Lsn
    batch: int
    commit_ts_ms: int | None = None
    capture: str = ""
    restart: bool = False
    planned_at_ms: int = 0
    capture_interrupted: bool = False
    revision: str = ""
    source_restored: bool = False
    committed_lsn: Lsn | None = None
    commit_lsn: Lsn | None = None
    version: int = VERSION

    @property
    def has_position(self) -> bool:
        """Whether it is a position: a table without one may have an offset of zeros, for what is known of it."""
        return any(self.lsn.raw)

    @property
    def is_ahead(self) -> bool:
        """Whether a person has set it beyond what the last result left: changes between the two would not be read."""
        return (
            self.committed_lsn is not None
            and len(self.committed_lsn.raw) == len(self.lsn.raw)
            and self.committed_lsn < self.lsn
        )

    @property
    def applied(self) -> tuple[Lsn, int] | None:
        """The newest applied commit and its time, None where one of them is not known."""
        return None if self.commit_lsn is None or self.commit_ts_ms is None else (self.commit_lsn, self.commit_ts_ms)

    def to_json(self) -> str:
        """Return the document that a store keeps."""
        return json.dumps(to_data(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, where: str) -> Offset:
        """Read the document kept under `where`.

        :raises OffsetError: it is not one of ours; the text names the place and both ways out.
        """
        try:
            offset = from_data(cls, json.loads(text))
            if offset.version != VERSION:
                raise ConfigurationError(f"it has version {offset.version}, this side speaks {VERSION}")
            return offset
        except (ValueError, ConfigurationError, OffsetError) as error:
            raise OffsetError(
                f"the offset kept in {where} cannot be read ({type(error).__name__}: {error})",
                "Put back its last good text: the commit task's log has the LSN, the batch log has all.",
            ) from error


class OffsetStore(Protocol):
    """Where offsets live between ticks; one document a table.

    An implementation must read back what it wrote and raise OffsetError where something shadows it. It may lag
    behind Delta (a crash before `put`): the next tick moves it forward.
    """

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset, None when there is none."""

    def put(self, offset: Offset) -> None:
        """Keep `offset`, never an older one than is kept."""

    def summary(self) -> PipelineSummary:
        """Return the summary, an empty one when none is kept."""

    def put_summary(self, summary: PipelineSummary) -> None:
        """Keep the summary; a failure to do so loses nothing, the target has the truth."""


def new_revision() -> str:
    """Return a mark that no offset has."""
    return uuid4().hex[:MARK_CHARS]


def with_capture_interrupted(table: TableId, old: Offset | None, fence: Lsn, mark: str) -> Offset:
    """Return a table's offset once its registration was found inactive: what changes meanwhile is lost.

    A table without one gets one all the same: the target may hold it, if its first ticks died before they kept theirs.
    """
    known = old or Offset(table, Lsn(bytes(len(fence.raw))), 0)
    return replace(known, capture_interrupted=True, revision=mark)


def record_capture_interrupted(offsets: OffsetStore, table: TableId, fence: Lsn) -> None:
    """Keep in a table's offset that its registration was found inactive.

    :raises OffsetError: the offset cannot be read or kept, also not once more: a commit may have moved it in between.
    """
    mark = new_revision()
    try:
        offsets.put(with_capture_interrupted(table, offsets.get(table), fence, mark))
    except OffsetError:
        offsets.put(with_capture_interrupted(table, offsets.get(table), fence, mark))


def record_source_restored(offsets: OffsetStore, table: TableId) -> Offset | None:
    """Keep in a table's offset that the source has another history than was applied; return it, None if it has none.

    One that begins anew anyway is left as it is.

    :raises OffsetError: the offset cannot be read or kept, also not once more: a commit may have moved it in between.
    """
    try:
        return _keep_restored(offsets, table)
    except OffsetError:
        return _keep_restored(offsets, table)


def _keep_restored(offsets: OffsetStore, table: TableId) -> Offset | None:
    old = offsets.get(table)
    if old is None or not old.has_position or old.restart or old.source_restored:
        return old
    offsets.put(new := replace(old, source_restored=True, revision=new_revision()))
    return new


def restart_hint(table: TableId) -> str:
    """Return, for a remedy, the command that has a table snapshotted anew."""
    return command_hint("restart", table)


def command_hint(action: str, table: TableId, *values: str) -> str:
    """Return, for a remedy, how to do something with a table's offset."""
    named = str(table) if PLAIN.fullmatch(str(table)) else shlex.quote(name_of(table))
    return f"`{' '.join(('db2cdc offset', action, named, *values))}` (with --airflow where Airflow runs the pipeline)"


def check_forward(old: Offset | None, new: Offset) -> None:
    """Refuse to move an offset backwards.

    :raises OffsetError: `new` lies before `old`, and nobody asked for a restart.
    """
    if old is not None and not old.restart and new.lsn < old.lsn:
        raise OffsetError(
            f"{new.table}: the offset would move back from {old.lsn} to {new.lsn}",
            "Another run moved it meanwhile: let that one go on.",
        )


def reconcile(table: TableId, stored_lsn: Lsn | None, committed_lsn: Lsn | None, has_offset: bool) -> Lsn | None:
    """Return where the table stands: what Delta proves, after a look at what the store believes.

    A store behind Delta is moved forward (a crash came between the commit and the store); so is one without an
    offset unless it once had one (`has_offset`). None means that neither knows the table: it is new.

    :raises OffsetError: the store lost an offset that Delta proves, or is ahead of Delta.
    """
    if stored_lsn == committed_lsn or (
        stored_lsn is not None and committed_lsn is not None and stored_lsn < committed_lsn
    ):
        return committed_lsn
    if stored_lsn is None and not has_offset:
        return committed_lsn
    if stored_lsn is None:
        document = Offset(table, committed_lsn, 0).to_json() if committed_lsn else ""
        raise OffsetError(
            f"{table}: its offset is missing, but the target holds its changes up to {committed_lsn}",
            f"Have it snapshotted anew by {restart_hint(table)}. Or, if no restart was asked for and its registration "
            f"was active all the time, put it back by {command_hint('set', table, str(committed_lsn))}, or as the "
            f"Airflow Variable's text {document}",
        )
    raise ahead_error(table, stored_lsn, committed_lsn)


def ahead_error(table: TableId, believed: Lsn, proven: Lsn | None) -> OffsetError:
    """Return the error of an offset that lies beyond what the target holds, with the way out."""
    holds = f"only holds changes up to {proven}" if proven else "holds nothing of this table"
    back = (
        f"Set it back by {command_hint('set', table, str(proven))}"
        if proven
        else f"Begin anew by {restart_hint(table)}"
    )
    return OffsetError(
        f"{table}: its offset {believed} is ahead of the target, which {holds}",
        f"Was it edited, or does the pipeline point to another target? {back}.",
    )
