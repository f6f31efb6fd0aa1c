"""One batch of one table: into the change log, then from the change log into the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_db2cdc.cdc.gap import find_gap, gap_error
from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.ledger import Commit, Entry
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.snapshot import ChunkCounts, Part, Reading, ends
from airflow_provider_db2cdc.spark.effects import BatchCounts, count_batch
from airflow_provider_db2cdc.spark.jdbc import Fetch, JdbcSource
from airflow_provider_db2cdc.spark.merge import State, find_effects, merge_effects
from airflow_provider_db2cdc.spark.progress import say
from airflow_provider_db2cdc.spark.pull import pull
from airflow_provider_db2cdc.spark.slice import Reads, as_read, delete_gone, delete_unread, publish_reads
from airflow_provider_db2cdc.spark.snapshot import chunk_rows, count_chunks
from airflow_provider_db2cdc.spark.target import Target


def apply_entry(
    target: Target,
    spec: JobSpec,
    source: JdbcSource,
    task: TableTask,
    entry: Entry,
    last: Commit | None,
    rows: int | None,
) -> Commit:
    """Bring one planned batch of one table into Delta and return what is there then; `target` is prepared.

    `rows` is how many change rows, at most, the source has counted in the batch's range, None where nobody has.

    Doing it again changes nothing: each step's write is skipped when it is already there, and the state is computed
    from the change log, so after a crash between the two nothing is read from the source again. Rows that were staged
    under other columns than the table has now are left out: their part of the snapshot is read anew.
    """
    of = as_read(entry.slice, target.schema)
    has_changes = rows != 0 and not entry.span.empty
    batch = pull(target, spec, source, task, entry, rows) if has_changes else target.batch(entry.batch)
    if of is not None and delete_gone(target, spec, entry, of, last is None or last.rows == 0):
        has_changes, batch = True, target.batch(entry.batch)
    counts = count_batch(batch) if has_changes else BatchCounts()
    reads = Reads(of) if of is None or of.sweep else publish_reads(target, spec, entry, of, counts)
    effects = find_effects(target, entry, batch, counts, reads, last)
    if effects.gone is not None:
        counts = delete_unread(target, spec, entry, reads, counts, effects.gone)
    say(
        f"table={entry.table} batch={entry.batch} in the change log: {counts.events} events, "
        f"{sum(reads.counts.values())} reads"
    )
    after = merge_effects(target, entry, effects, counts, reads, last)
    return _committed(replace(entry, slice=reads.of), counts, reads.counts, after, last)


def planned_rows(spec: JobSpec, task: TableTask, entry: Entry) -> int | None:
    """Return how many change rows, at most, the plan has counted in the entry's range, None where it has not.

    It has not for a batch of another plan: what that one counted may be in the change log and pruned at the source.
    """
    is_counted = entry.planned_at_ms == spec.planned_at_ms and not task.restart
    return task.rows if is_counted and entry.after == task.believed and entry.upto <= task.upto else None


def unmoved(entry: Entry, last: Commit) -> Commit:
    """Return the commit of a range that held no change of the table: its offset moves, its tables do not."""
    return Commit(
        batch=entry.batch, table=entry.table, upto=entry.upto, capture=entry.capture,
        creates=0, updates=0, deletes=0, reads=0, commit_ts_ms=last.commit_ts_ms,
        state_version=last.state_version, rows=last.rows,
    )  # fmt: skip


def check_readable(target: Target, task: TableTask, entry: Entry, fence: Lsn) -> None:
    """Refuse to redo a batch whose changes may be gone from the source and are not in the change log either.

    `fence` is how far capture stands.

    :raises GapError: that is so.
    """
    gap = find_gap(entry.after, entry.capture, task.capture.identity, task.capture.floor, fence)
    if gap is None or entry.span.empty:
        return
    if not target.has_changes() or target.batch(entry.batch).where("op IN ('c', 'u', 'd')").isEmpty():
        raise gap_error(task.table, gap)


def stage_chunks(
    target: Target, spec: JobSpec, source: JdbcSource, part: Part, reading: Reading
) -> tuple[int, tuple[ChunkCounts, ...]]:
    """Read some chunks of a table into its staging table; return the version that holds just these rows, and counts.

    The source counts after the read and before the high mark, so that every change between the two is in the window.
    """
    spark, schema = target.spark, target.schema
    how = Fetch(spec.settings.snapshot_fetch_rows, spec.settings.snapshot_isolation)
    readers = spec.settings.parallel_reads
    version = target.stage(chunk_rows(spark, source, schema, part, reading, how, readers))
    read = {int(row[0]): int(row[1]) for row in target.staged(version).groupBy("chunk").count().collect()}
    counted = count_chunks(spark, source, schema, part, reading, readers)
    counts = (ChunkCounts(*ends(part, chunk), read.get(chunk, 0), rows) for chunk, rows in sorted(counted.items()))
    return version, tuple(counts)


def _committed(
    entry: Entry, counts: BatchCounts, published: Mapping[int, int], state: State, last: Commit | None
) -> Commit:
    before_ms = None if last is None else last.commit_ts_ms
    return Commit(
        batch=entry.batch,
        table=entry.table,
        upto=entry.upto,
        capture=entry.capture,
        creates=counts.creates,
        updates=counts.updates,
        deletes=counts.deletes,
        reads=sum(published.values()),
        commit_ts_ms=before_ms if counts.last_commit_us is None else counts.last_commit_us // 1000,
        state_version=state.version,
        rows=state.rows,
        slice=entry.slice,
        published=published,
    )
