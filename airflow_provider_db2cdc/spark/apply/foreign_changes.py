"""Detection of foreign writers that changed rows of a table's state or change log, and the repair.

The pipeline's own commits carry its mark. Any other commit is judged by the name of its operation in Delta's history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias
from zlib import crc32

from pyspark.sql import Row

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.offset.offset import heal_hint, restart_hint
from airflow_provider_db2cdc.cdc.snapshot.heal import ends_heal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.log_replay import doubled_keys, kept_rows, lost_rows
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import Version, current_version, delta_table, table_exists
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.session import MARK
from airflow_provider_db2cdc.tick.log import log_progress
from airflow_provider_db2cdc.tick.ports import TableBatch

KEEPS_ROWS = frozenset(
    (
        "OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "OPTIMIZE CHECKPOINT", "COMPUTE STATS", "CLUSTER BY",
        "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "UPDATE SCHEMA",
        "ADD CONSTRAINT", "DROP CONSTRAINT", "UPGRADE PROTOCOL", "ADD FEATURE", "DROP FEATURE", "ROW TRACKING BACKFILL",
        "ROW TRACKING UNBACKFILL", "Deletion Vector Tombstones", "DOMAIN METADATA CLEANUP", "Empty Commit",
    )
)  # fmt: skip
"""Operations that change no row, as Spark and delta-rs name them. Any other operation may have changed rows."""

Apply: TypeAlias = Callable[[int | None], AppliedBatch]
"""Apply a batch, given the batch after which another writer has changed the state, if one has."""

CHECK_EVERY = 100
"""An idle table is checked in one of so many batches."""


@dataclass(frozen=True)
class Versions:
    """The versions of a table's state and change log up to which all commits are checked."""

    state: Version
    changes: Version


Correct: TypeAlias = Callable[[Versions, bool], AppliedBatch]
"""Apply the batch of a repair, given the versions before it, and whether another writer has changed the state."""


def check_exists(replica: Replica) -> None:
    """Check that the state and the change log exist. A new table would hold only rows from now on.

    :raises TargetError: when one of them is missing.
    """
    names = (replica.layout.state(replica.table), replica.layout.changes(replica.table))
    missing = [name.name for name in names if not table_exists(replica.spark, name)]
    if missing:
        raise TargetError(
            f"{replica.table}: {' and '.join(missing)} is not there any more, but the pipeline has written it",
            f"Put it back, or restart the table: {restart_hint(replica.table)}.",
        )


def apply_guarded(
    replica: Replica, last: AppliedBatch | None, apply: Apply, accepted_since: int | None = None
) -> AppliedBatch:
    """Apply a batch of a table and return it with the versions after it.

    All versions since the `last` applied batch, if given, are checked before it. Versions that the batch did not write
    are checked after it: a foreign writer may come between.

    While a heal is open, changes of the state are accepted. One that is found before the batch counts as made after
    batch `accepted_since`. The change stays recorded until a heal has ended that began after it.

    :raises TargetError: when a foreign writer has changed rows of the change log, or of the state without a heal.
    """
    accepts = accepted_since is not None
    before, is_changed = _versions(replica, last, accepts)
    since = accepted_since if is_changed else None if last is None else last.foreign_since
    applied = apply(since)
    after, is_changed = _versions_after(replica, before, accepts)
    if is_changed:
        since = applied.batch
    elif since is not None and ends_heal(applied.chunk_range, since):
        since = None
    return replace(_with_versions(applied, after), foreign_since=since)


def find_foreign_changes(replica: Replica, last: AppliedBatch) -> tuple[Versions, bool]:
    """Return the current versions of state and change log, and whether another writer has changed the state.

    :raises TargetError: when another writer has changed the change log.
    """
    versions, is_changed = _versions(replica, last, accepts=True)
    return versions, is_changed or last.foreign_since is not None


def repair_guarded(replica: Replica, batch: TableBatch, correct: Correct) -> AppliedBatch:
    """Apply the batch of a repair, and return it with the versions after it.

    Changes of the state by another writer are accepted. But they stay known, so that other batches are refused, unless
    this try has compared all keys and then written: a replay. A first try may have written before the change.

    :raises TargetError: when another writer has changed the change log.
    """
    last, repair, state = batch.last, batch.planned.repair, replica.layout.state(replica.table)
    assert last is not None
    assert repair is not None
    before, is_foreign = find_foreign_changes(replica, last)
    applied = correct(before, is_foreign)
    after, is_changed_since = _versions_after(replica, before, accepts=True)
    is_whole = repair.repair.type == "replay" and state in replica.written_versions
    if is_foreign and not is_whole:
        kept = Version(last.state_id, last.state_version)
        return replace(_with_versions(applied, replace(after, state=kept)), foreign_since=last.foreign_since)
    return replace(
        _with_versions(applied, replace(after, state=before.state) if is_changed_since else after), foreign_since=None
    )


def is_check_due(table: TableId, batch: int) -> bool:
    """Whether an idle table is checked in this batch. The batches of different tables are spread by a hash."""
    return (crc32(str(table).encode()) - batch) % CHECK_EVERY == 0


def check_idle(replica: Replica, last: AppliedBatch) -> AppliedBatch:
    """Return an idle table's last applied batch with the current versions.

    So a foreign change is found in the end. Also the next check needs less of Delta's history, which is not kept for
    ever.

    :raises TargetError: when a foreign writer has changed rows since the last check, or a table is missing.
    """
    check_exists(replica)
    return _with_versions(last, _versions(replica, last)[0])


def is_changed_by_others(replica: Replica, last: AppliedBatch) -> bool:
    """Return whether another writer has changed the state or the change log of a table that begins again."""
    try:
        _versions(replica, last)
    except TargetError as error:
        log_progress(f"table={replica.table} begins again: {error.problem}")
        return True
    return False


def clear_manifest_of_reset(replica: Replica, last: AppliedBatch, ledger: BatchLog) -> None:
    """Clear the manifest if the state was replaced or put back. It would name versions that no longer exist."""
    now = current_version(replica.spark, replica.layout.state(replica.table))
    if now.id != last.state_id or now.number < last.state_version:
        ledger.clear_manifest()


@failpoint("refill_state")
def refill(replica: Replica, batch: int) -> None:
    """Restore rows of the state from the change log, before a table starts again or a heal compares it.

    The snapshot compares the source with the state to publish deletes. It would miss rows that only the change log has.
    It would also keep each of several rows of one key. Such rows are deleted first, and the logged one is restored. If
    the log was trimmed and has no event of the key, one of them stays. `batch` is the snapshot's first.
    """
    doubled = doubled_keys(replica)
    replica.delete_keys(doubled, batch, kept_rows(replica, doubled))
    replica.refill(lost_rows(replica), batch)


def _versions(replica: Replica, last: AppliedBatch | None, accepts: bool = False) -> tuple[Versions, bool]:
    """Return the current versions of state and change log, checked from the last applied batch on if there is one.

    The second value says whether a change of the state was found, and accepted.
    """
    state, changes = (replica.layout.state(replica.table), replica.layout.changes(replica.table))
    if last is None:
        return Versions(current_version(replica.spark, state), current_version(replica.spark, changes)), False
    if last.foreign_since is not None and not accepts:
        raise _error(replica, "current state", state, "a heal found it, and no heal has ended since")
    known = Versions(Version(last.state_id, last.state_version), Version(last.changes_id, last.changes_version))
    return _checked(replica, known, accepts)


def _versions_after(replica: Replica, before: Versions, accepts: bool) -> tuple[Versions, bool]:
    """Return the versions after a batch. They are checked unless the batch wrote all versions since `before`.

    The second value says whether a change of the state was found, and accepted.
    """
    written = [_written_version(replica, name, known) for name, known in _by_table(replica, before)]
    if written[0] is not None and written[1] is not None:
        return Versions(written[0], written[1]), False
    return _checked(replica, before, accepts)


def _with_versions(commit: AppliedBatch, versions: Versions) -> AppliedBatch:
    """Return an applied batch with the versions after it."""
    state, changes = versions.state, versions.changes
    return replace(
        commit, state_id=state.id, state_version=state.number, changes_id=changes.id, changes_version=changes.number
    )


def _by_table(replica: Replica, versions: Versions) -> list[tuple[DeltaName, Version]]:
    layout, table = replica.layout, replica.table
    return [(layout.state(table), versions.state), (layout.changes(table), versions.changes)]


def _written_version(replica: Replica, name: DeltaName, before: Version) -> Version | None:
    """Return the version of a table after the batch's own writes, None if there are commits of others between."""
    written = replica.written_versions.get(name, [])
    is_gapless = written == [*range(before.number + 1, before.number + 1 + len(written))]
    return replace(before, number=before.number + len(written)) if is_gapless else None


def _checked(replica: Replica, known: Versions, accepts: bool) -> tuple[Versions, bool]:
    state, changes = _by_table(replica, known)
    logged = _check(replica, "change log", *changes)
    try:
        return Versions(_check(replica, "current state", *state), logged), False
    except TargetError as error:
        if not accepts:
            raise
        log_progress(f"table={replica.table} is healed: {error.problem}")
        return Versions(current_version(replica.spark, state[0]), logged), True


def _check(replica: Replica, what: str, name: DeltaName, known: Version) -> Version:
    """Return a table's newest version.

    :raises TargetError: when rows may have changed since the known version by a commit that is not the pipeline's.
    """
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
    heal = f"Heal the table: {heal_hint(replica.table)}. Or restart" if what == "current state" else "Restart"
    return TargetError(
        f"{replica.table}: somebody else has changed its {what} ({name.name}): {why}",
        f"{heal} the table, which mends both its state and its change log: {restart_hint(replica.table)}.",
    )
