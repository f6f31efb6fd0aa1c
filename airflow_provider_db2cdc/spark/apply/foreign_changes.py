"""Whether somebody else has changed the rows of a table's state or change log, and what then.

The pipeline's own commits carry its mark. Every other commit is known by Delta's history, by the name of its operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from zlib import crc32

from pyspark.sql import Row

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.offset.offset import restart_hint
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.log_replay import lost_rows
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import Version, current_version, delta_table, table_exists
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.session import MARK
from airflow_provider_db2cdc.tick.log import log_progress

KEEPS_ROWS = frozenset(
    (
        "OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "OPTIMIZE CHECKPOINT", "COMPUTE STATS", "CLUSTER BY",
        "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "UPDATE SCHEMA",
        "ADD CONSTRAINT", "DROP CONSTRAINT", "UPGRADE PROTOCOL", "ADD FEATURE", "DROP FEATURE", "ROW TRACKING BACKFILL",
        "ROW TRACKING UNBACKFILL", "Deletion Vector Tombstones", "DOMAIN METADATA CLEANUP", "Empty Commit",
    )
)  # fmt: skip
"""Operations that change no row, as Spark and delta-rs name them. One of another name may have changed some."""

CHECK_EVERY = 100


@dataclass(frozen=True)
class Versions:
    """The versions of a table's state and change log up to which all commits are known."""

    state: Version
    changes: Version


def check_exists(replica: Replica) -> None:
    """Refuse to go on with tables of which one is gone: a new one would hold only what comes from now on.

    :raises TargetError: one is gone.
    """
    names = (replica.layout.state(replica.table), replica.layout.changes(replica.table))
    gone = [name.name for name in names if not table_exists(replica.spark, name)]
    if gone:
        raise TargetError(
            f"{replica.table}: {' and '.join(gone)} is not there any more, but the pipeline has written it",
            f"Put it back, or restart the table: {restart_hint(replica.table)}.",
        )


def apply_guarded(replica: Replica, last: AppliedBatch | None, apply: Callable[[], AppliedBatch]) -> AppliedBatch:
    """Do a batch of a table and return its commit with the versions that it has left.

    Before it, all versions since the `last` commit are checked, if that is given; after it, those that are not its own.

    :raises TargetError: somebody else has changed rows of the state or the change log.
    """
    before = _versions(replica, last)
    return _with_versions(apply(), _versions_after(replica, before))


def is_check_due(table: TableId, batch: int) -> bool:
    """Whether a table is looked at in a batch that brings nothing of it: so it is in one of so many."""
    return (crc32(str(table).encode()) - batch) % CHECK_EVERY == 0


def check_idle(replica: Replica, last: AppliedBatch) -> AppliedBatch:
    """Return an idle table's last commit with the versions that are there now.

    So a change is found in the end, and Delta's history, which is not kept for ever, reaches back far enough.

    :raises TargetError: somebody else has changed rows since its last commit, or a table is gone.
    """
    check_exists(replica)
    return _with_versions(last, _versions(replica, last))


def refill_if_changed(replica: Replica, last: AppliedBatch, ledger: BatchLog, batch: int) -> None:
    """Before a table begins again, give its state what only the change log holds, if somebody has changed one of them.

    Its snapshot finds by the state what is gone from the source, and tells the change log. `batch` is the snapshot's
    first. No manifest may name versions of a state that is not there any more.
    """
    try:
        _versions(replica, last)
        return
    except TargetError as error:
        log_progress(f"table={replica.table} begins again: {error.problem}")
    name = replica.layout.state(replica.table)
    now = current_version(replica.spark, name)
    if now.id != last.state_id or now.number < last.state_version:
        ledger.clear_manifest()
    replica.refill(lost_rows(replica), batch)


def _versions(replica: Replica, last: AppliedBatch | None) -> Versions:
    """Return the versions of a table's state and change log, checked from its last commit on if that is given."""
    state, changes = (replica.layout.state(replica.table), replica.layout.changes(replica.table))
    if last is None:
        return Versions(current_version(replica.spark, state), current_version(replica.spark, changes))
    left = Versions(Version(last.state_id, last.state_version), Version(last.changes_id, last.changes_version))
    return _checked(replica, left)


def _versions_after(replica: Replica, before: Versions) -> Versions:
    """Return the versions after a batch; where others than its own lie between they are checked."""
    made = [_made(replica, name, known) for name, known in _named(replica, before)]
    if made[0] is not None and made[1] is not None:
        return Versions(made[0], made[1])
    return _checked(replica, before)


def _with_versions(commit: AppliedBatch, found: Versions) -> AppliedBatch:
    """Return a commit with the versions that it has left."""
    state, changes = found.state, found.changes
    return replace(
        commit, state_id=state.id, state_version=state.number, changes_id=changes.id, changes_version=changes.number
    )


def _named(replica: Replica, found: Versions) -> list[tuple[DeltaName, Version]]:
    layout, table = replica.layout, replica.table
    return [(layout.state(table), found.state), (layout.changes(table), found.changes)]


def _made(replica: Replica, name: DeltaName, before: Version) -> Version | None:
    """Return the version that a batch's own writes have made of a table; None where other commits lie between."""
    made = replica.written_versions.get(name, [])
    is_own = made == [*range(before.number + 1, before.number + 1 + len(made))]
    return replace(before, number=before.number + len(made)) if is_own else None


def _checked(replica: Replica, known: Versions) -> Versions:
    state, changes = _named(replica, known)
    return Versions(
        _check(replica, "current state", *state),
        _check(replica, "change log", *changes),
    )


def _check(replica: Replica, what: str, name: DeltaName, known: Version) -> Version:
    """Return a table's newest version, once it is certain that only the pipeline has changed rows since a known one."""
    now = current_version(replica.spark, name)
    if now == known:
        return now
    if now.id != known.id:
        raise _error(replica, what, name, "it is another table than the pipeline has written")
    if now.number < known.number:
        raise _error(replica, what, name, f"version {known.number} is gone, the newest is {now.number}")
    mark = replica.spark.conf.get(MARK, None)
    rows = _newest_commits(replica, name, now.number - known.number)
    if len(rows) < now.number - known.number:
        raise _error(replica, what, name, f"Delta no longer tells who has made the versions after {known.number}")
    foreign = [row for row in rows if row["operation"] not in KEEPS_ROWS and (mark is None or row[2] != mark)]
    if foreign:
        first = foreign[-1]
        raise _error(replica, what, name, f"version {first['version']} is of {first['operation'] or 'unknown origin'}")
    return now


@failpoint("read_table_history")
def _newest_commits(replica: Replica, name: DeltaName, count: int) -> list[Row]:
    history = delta_table(replica.spark, name).history(count)
    return history.select("version", "operation", "userMetadata").collect()


def _error(replica: Replica, what: str, name: DeltaName, why: str) -> TargetError:
    return TargetError(
        f"{replica.table}: somebody else has changed its {what} ({name.name}): {why}",
        f"Restart the table, which mends both its state and its change log: {restart_hint(replica.table)}.",
    )
