"""Planned and applied batches as rows of the batch log and the commit log, and back."""

from __future__ import annotations

import json

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.repair.repair import PlannedRepair
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.cdc.table import TableId

BATCHES = (
    "batch bigint, run_id string, plan_id string, schema string, table string, after_lsn string, upto_lsn string, "
    "planned_at_ms bigint, capture string, chunk_range string, has_offset boolean, rows bigint, repair string"
)
COMMITS = (
    "batch bigint, schema string, table string, upto_lsn string, capture string, creates bigint, updates bigint, "
    "deletes bigint, reads bigint, commit_ts_ms bigint, as_of_ms bigint, state_version bigint, rows bigint, "
    "state_id string, changes_id string, changes_version bigint, foreign_since bigint, commit_lsn string, "
    "applied_at_ms bigint, snapshot string, kind string, condition string, low_lsn string, "
    "chunks array<struct<chunk: int, low_bound: string, high_bound: string, rows_read: bigint, rows_counted: bigint, "
    "rows_published: bigint, rows_dropped: bigint>>, repair string"
)
"""`chunks` has an entry for each chunk of a snapshot that the batch published.

An entry has the chunk's bounds as SQL literals (low exclusive, high inclusive), and four counts of rows: those read,
those that the source counted right after the read, those published as `r`, and those dropped.
Changes between `low_lsn` and `upto_lsn` override the dropped rows.
"""

VERSIONS = ("state_id", "changes_id", "changes_version", "foreign_since")
TIMES = ("commit_ts_ms", "as_of_ms")
COUNTED = ("batch", "creates", "updates", "deletes", "reads", *TIMES, "state_version", "rows", *VERSIONS)
COMMIT_FIELDS = ("schema", "table", "upto_lsn", "capture", "snapshot", "commit_lsn", "repair", *COUNTED)


def _identity_text(identity: CaptureIdentity) -> str:
    return json.dumps(to_data(identity), sort_keys=True)


def _identity(text: str) -> CaptureIdentity:
    return from_data(CaptureIdentity, json.loads(text))


def planned_row(planned: PlannedBatch) -> tuple[object, ...]:
    """Return a planned batch as a row of BATCHES."""
    span = (str(planned.after), str(planned.upto))
    ids = (planned.batch, planned.run_id, planned.plan_id, planned.table.schema, planned.table.name)
    chunk_range, repair = (
        None if part is None else json.dumps(to_data(part), sort_keys=True)
        for part in (planned.chunk_range, planned.repair)
    )
    return (
        *ids,
        *span,
        planned.planned_at_ms,
        _identity_text(planned.capture),
        chunk_range,
        planned.has_offset,
        planned.rows,
        repair,
    )


def applied_row(commit: AppliedBatch, at_ms: int) -> tuple[object, ...]:
    """Return an applied batch, with the time at which it was applied, as a row of COMMITS."""
    ids = (commit.batch, commit.table.schema, commit.table.name, str(commit.upto), _identity_text(commit.capture))
    counts = (getattr(commit, name) for name in COUNTED[1:])
    commit_lsn = None if commit.commit_lsn is None else str(commit.commit_lsn)
    return (*ids, *counts, commit_lsn, at_ms, *_chunk_range_columns(commit), commit.repair)


def _chunk_range_columns(commit: AppliedBatch) -> tuple[object, ...]:
    """Return the columns of COMMITS from `snapshot` to `chunks`."""
    chunk_range = commit.chunk_range
    if chunk_range is None:
        return (None, None, None, None, None)
    chunks = [
        (number, ", ".join(c.low), ", ".join(c.high), c.rows_read, c.rows_counted, published, c.rows_read - published)
        for number, c in enumerate(chunk_range.counts, chunk_range.first)
        for published in [commit.published.get(number, 0)]
    ]
    low_lsn = str(chunk_range.low_watermark)
    return (chunk_range.snapshot, chunk_range.snapshot_kind, chunk_range.condition, low_lsn, chunks)


def planned_batch(row: Row) -> PlannedBatch:
    """Return the planned batch in a row of BATCHES."""
    return PlannedBatch(
        batch=row["batch"],
        run_id=row["run_id"],
        plan_id=row["plan_id"],
        table=TableId(row["schema"], row["table"]),
        after=Lsn.parse(row["after_lsn"]),
        upto=Lsn.parse(row["upto_lsn"]),
        planned_at_ms=row["planned_at_ms"],
        capture=_identity(row["capture"]),
        chunk_range=None if row["chunk_range"] is None else from_data(ChunkRange, json.loads(row["chunk_range"])),
        has_offset=row["has_offset"],
        rows=row["rows"],
        repair=None if row["repair"] is None else from_data(PlannedRepair, json.loads(row["repair"])),
    )


def applied_batch(row: Row) -> AppliedBatch:
    """Return the applied batch in a row of COMMITS, without its chunk range."""
    return AppliedBatch(
        table=TableId(row["schema"], row["table"]),
        upto=Lsn.parse(row["upto_lsn"]),
        capture=_identity(row["capture"]),
        snapshot=row["snapshot"],
        commit_lsn=None if row["commit_lsn"] is None else Lsn.parse(row["commit_lsn"]),
        repair=row["repair"],
        **{name: row[name] for name in COUNTED},
    )


def begins_table() -> Column:
    """Return whether a row of the batch log begins its table, as `cdc.offset.batch_history.begins` says."""
    kind, number, type_ = (F.get_json_object("chunk_range", f"$.{name}") for name in ("snapshot_kind", "first", "type"))
    is_first_group = (kind == "initial") & (number == "0") & (type_ != "delete_missing")
    begins = F.when(F.col("chunk_range").isNull(), F.col("after_lsn") == F.col("upto_lsn")).otherwise(is_first_group)
    return F.col("repair").isNull() & begins
