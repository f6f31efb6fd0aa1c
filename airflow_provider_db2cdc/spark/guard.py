"""Whether somebody else has changed the rows of a table's state or change log, and what then.

The pipeline's own commits carry its mark. Every other commit is known by Delta's history, by the name of its operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from zlib import crc32

from pyspark.sql import Row

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.ledger import Commit
from airflow_provider_db2cdc.cdc.offset import restart_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta import Version, current, delta_table, table_exists
from airflow_provider_db2cdc.spark.ledger import Ledger
from airflow_provider_db2cdc.spark.progress import say
from airflow_provider_db2cdc.spark.replay import lost_rows
from airflow_provider_db2cdc.spark.session import MARK
from airflow_provider_db2cdc.spark.target import Target

KEEPS_ROWS = frozenset(
    (
        "OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "OPTIMIZE CHECKPOINT", "COMPUTE STATS", "CLUSTER BY",
        "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "UPDATE SCHEMA",
        "ADD CONSTRAINT", "DROP CONSTRAINT", "UPGRADE PROTOCOL", "ADD FEATURE", "DROP FEATURE", "ROW TRACKING BACKFILL",
        "ROW TRACKING UNBACKFILL", "Deletion Vector Tombstones", "DOMAIN METADATA CLEANUP", "Empty Commit",
    )
)  # fmt: skip
"""Operations that change no row, as Spark and delta-rs name them. One of another name may have changed some."""

LOOK_EVERY = 100


@dataclass(frozen=True)
class Versions:
    """The versions of a table's state and change log up to which all commits are known."""

    state: Version
    changes: Version


def check_there(target: Target) -> None:
    """Refuse to go on with tables of which one is gone: a new one would hold only what comes from now on.

    :raises TargetError: one is gone.
    """
    names = (target.layout.state(target.table), target.layout.changes(target.table))
    gone = [name.name for name in names if not table_exists(target.spark, name)]
    if gone:
        raise TargetError(
            f"{target.table}: {' and '.join(gone)} is not there any more, but the pipeline has written it",
            f"Put it back, or restart the table: {restart_of(target.table)}.",
        )


def guarded(target: Target, last: Commit | None, apply: Callable[[], Commit]) -> Commit:
    """Do a batch of a table and return its commit with the versions that it has left.

    Before it, all versions since the `last` commit are checked, if that is given; after it, those that are not its own.

    :raises TargetError: somebody else has changed rows of the state or the change log.
    """
    before = _versions(target, last)
    return _with_versions(apply(), _versions_after(target, before))


def is_looked_at(table: TableId, batch: int) -> bool:
    """Whether a table is looked at in a batch that brings nothing of it: so it is in one of so many."""
    return (crc32(str(table).encode()) - batch) % LOOK_EVERY == 0


def looked_at(target: Target, last: Commit) -> Commit:
    """Return an idle table's last commit with the versions that are there now.

    So a change is found in the end, and Delta's history, which is not kept for ever, reaches back far enough.

    :raises TargetError: somebody else has changed rows since its last commit, or a table is gone.
    """
    check_there(target)
    return _with_versions(last, _versions(target, last))


def mend(target: Target, last: Commit, ledger: Ledger, batch: int) -> None:
    """Before a table begins again, give its state what only the change log holds, if somebody has changed one of them.

    Its snapshot finds by the state what is gone from the source, and tells the change log. `batch` is the snapshot's
    first. No manifest may name versions of a state that is not there any more.
    """
    try:
        _versions(target, last)
        return
    except TargetError as error:
        say(f"table={target.table} begins again: {error.problem}")
    name = target.layout.state(target.table)
    now = current(target.spark, name)
    if now.id != last.state_id or now.number < last.state_version:
        ledger.clear_manifest()
    target.refill(lost_rows(target), batch)


def _versions(target: Target, last: Commit | None) -> Versions:
    """Return the versions of a table's state and change log, checked from its last commit on if that is given."""
    state, changes = (target.layout.state(target.table), target.layout.changes(target.table))
    if last is None:
        return Versions(current(target.spark, state), current(target.spark, changes))
    left = Versions(Version(last.state_id, last.state_version), Version(last.changes_id, last.changes_version))
    return _checked(target, left)


def _versions_after(target: Target, before: Versions) -> Versions:
    """Return the versions after a batch; where others than its own lie between they are checked."""
    made = [_made(target, name, known) for name, known in _named(target, before)]
    if made[0] is not None and made[1] is not None:
        return Versions(made[0], made[1])
    return _checked(target, before)


def _with_versions(commit: Commit, found: Versions) -> Commit:
    """Return a commit with the versions that it has left."""
    state, changes = found.state, found.changes
    return replace(
        commit, state_id=state.id, state_version=state.number, changes_id=changes.id, changes_version=changes.number
    )


def _named(target: Target, found: Versions) -> list[tuple[DeltaName, Version]]:
    layout, table = target.layout, target.table
    return [(layout.state(table), found.state), (layout.changes(table), found.changes)]


def _made(target: Target, name: DeltaName, before: Version) -> Version | None:
    """Return the version that a batch's own writes have made of a table; None where other commits lie between."""
    made = target.made.get(name, [])
    is_own = made == [*range(before.number + 1, before.number + 1 + len(made))]
    return replace(before, number=before.number + len(made)) if is_own else None


def _checked(target: Target, known: Versions) -> Versions:
    state, changes = _named(target, known)
    return Versions(
        _check(target, "current state", *state),
        _check(target, "change log", *changes),
    )


def _check(target: Target, what: str, name: DeltaName, known: Version) -> Version:
    """Return a table's newest version, once it is certain that only the pipeline has changed rows since a known one."""
    now = current(target.spark, name)
    if now == known:
        return now
    if now.id != known.id:
        raise _error(target, what, name, "it is another table than the pipeline has written")
    if now.number < known.number:
        raise _error(target, what, name, f"version {known.number} is gone, the newest is {now.number}")
    mark = target.spark.conf.get(MARK, None)
    rows = _newest_commits(target, name, now.number - known.number)
    if len(rows) < now.number - known.number:
        raise _error(target, what, name, f"Delta no longer tells who has made the versions after {known.number}")
    foreign = [row for row in rows if row["operation"] not in KEEPS_ROWS and (mark is None or row[2] != mark)]
    if foreign:
        first = foreign[-1]
        raise _error(target, what, name, f"version {first['version']} is of {first['operation'] or 'unknown origin'}")
    return now


@failpoint("read_table_history")
def _newest_commits(target: Target, name: DeltaName, count: int) -> list[Row]:
    history = delta_table(target.spark, name).history(count)
    return history.select("version", "operation", "userMetadata").collect()


def _error(target: Target, what: str, name: DeltaName, why: str) -> TargetError:
    return TargetError(
        f"{target.table}: somebody else has changed its {what} ({name.name}): {why}",
        f"Restart the table, which mends both its state and its change log: {restart_of(target.table)}.",
    )
