"""Complete rows of the change log: each field of Debezium's envelope, in the order of readers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from support.filled import ask, changed, filled
from support.pipeline import SOURCE_AHEAD, Pipeline

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.version import __version__

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

LAST = str(Lsn(b"\xff" * 16))


def done(pipeline: Pipeline, *signals: Any) -> JobSpec:
    """Do a tick, and return its plan."""
    spec = pipeline.plan(signals=signals)
    assert spec is not None
    result = job.run(spec)
    assert not result.failed, result.failed
    pipeline.commit(result)
    return spec


def row(
    spec: JobSpec, table: TableId, at: tuple[str, str, int], op: str | None, key: int, **fields: Any
) -> dict[str, Any]:
    """Return a row of the change log at a commit, an intent and an ordinal. Images are texts of A."""
    commit, intent, ordinal = at
    ts_us, snapshot = fields.get("ts_us", spec.planned_at_ms * 1000), fields.get("snapshot", "false")
    source = {
        "version": __version__, "connector": "db2", "name": "erp", "ts_ms": ts_us // 1000, "snapshot": snapshot,
        "db": "SANDBOX", "sequence": None, "ts_us": ts_us, "ts_ns": ts_us * 1000, "schema": table.schema,
        "table": table.name, "change_lsn": None if snapshot != "false" else intent, "commit_lsn": commit,
    }  # fmt: skip
    images = {name: None if (text := fields.get(name)) is None else {"ID": key, "A": text} for name in IMAGES}
    keys = {name: {"ID": fields[name]} if name in fields else None for name in ("newkey", "oldkey")}
    at_ms = None if op is None else spec.planned_at_ms
    return {
        "__commit_lsn": commit, "__intent_lsn": intent, "__ordinal": ordinal, "key": {"ID": key}, **images,
        "source": source if op else None, "op": op, "ts_ms": at_ms, "ts_us": at_ms and at_ms * 1000,
        "ts_ns": at_ms and at_ms * 1_000_000, "transaction": None, "headers": keys if any(keys.values()) else None,
    }  # fmt: skip


IMAGES = ("before", "after")
SOURCE = [
    "version",
    "connector",
    "name",
    "ts_ms",
    "snapshot",
    "db",
    "sequence",
    "ts_us",
    "ts_ns",
    "schema",
    "table",
    "change_lsn",
    "commit_lsn",
]
"""The fields of Debezium's Db2SourceInfoStructMaker, in its order."""


def logged(pipeline: Pipeline, table: TableId, spec: JobSpec) -> list[dict[str, Any]]:
    """Return the events that a tick appended to the change log, in the documented order."""
    rows = pipeline.changes(table).where(f"source.ts_us IS NULL OR ts_ms = {spec.planned_at_ms}")
    found = [one.asDict(recursive=True) for one in rows.orderBy("__commit_lsn", "__intent_lsn", "__ordinal").collect()]
    batches = {one["__batch"] for one in found if one["ts_ms"] == spec.planned_at_ms}
    return [{name: one[name] for name in one if name != "__batch"} for one in found if one["__batch"] in batches]


def commits(pipeline: Pipeline, table: TableId) -> list[tuple[str, str, str, int]]:
    """Return operation, commit, intent and the commit's time of the change rows, in their order."""
    rows = pipeline.query(
        "SELECT C.IBMSNAP_OPERATION, C.IBMSNAP_COMMITSEQ, C.IBMSNAP_INTENTSEQ, U.IBMSNAP_LOGMARKER "
        f'FROM ASNCDC."CDC_{table.schema}_{table.name}" C JOIN ASNCDC.IBMSNAP_UOW U '
        "ON U.IBMSNAP_COMMITSEQ = C.IBMSNAP_COMMITSEQ ORDER BY C.IBMSNAP_COMMITSEQ, C.IBMSNAP_INTENTSEQ"
    )
    return [(op, str(Lsn(bytes(commit))), str(Lsn(bytes(intent))), _utc_us(time)) for op, commit, intent, time in rows]


def _utc_us(local: datetime) -> int:
    return round((local - SOURCE_AHEAD).replace(tzinfo=UTC).timestamp() * 1_000_000)


def test_events_of_changes_and_of_a_snapshot(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"topic.prefix": "erp"})
    table = filled(pipeline, 2)
    first = done(pipeline)
    stands = first.capture_position.lsn
    changed(pipeline, f"INSERT INTO {table} VALUES (5, 'c')")
    changed(pipeline, f"UPDATE {table} SET A = 'x' WHERE ID = 0")
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 1")
    changed(pipeline, f"UPDATE {table} SET ID = 6 WHERE ID = 5")
    spec = done(pipeline)
    rows = [one for one in commits(pipeline, table) if one[1] > str(stands)]
    assert [one[0] for one in rows] == ["I", "D", "I", "D", "D", "I"]
    assert pipeline.changes(table).select("source.*").columns == SOURCE
    c, _, u, d, o, n = rows
    assert logged(pipeline, table, spec) == [
        row(spec, table, (*c[1:3], 0), "c", 5, after="c", ts_us=c[3]),
        row(spec, table, (*u[1:3], 0), "u", 0, before="a", after="x", ts_us=u[3]),
        row(spec, table, (*d[1:3], 0), "d", 1, before="a", ts_us=d[3]),
        row(spec, table, (*d[1:3], 1), None, 1),
        row(spec, table, (*o[1:3], 0), "d", 5, before="c", newkey=6, ts_us=o[3]),
        row(spec, table, (*o[1:3], 1), None, 5, newkey=6),
        row(spec, table, (*n[1:3], 0), "c", 6, after="c", oldkey=5, ts_us=n[3]),
    ]

    pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 6")
    spec = done(pipeline, ask(table))
    found = logged(pipeline, table, spec)
    at = found[0]["__commit_lsn"]
    assert found == [
        row(spec, table, (at, LAST, 0), "d", 6, before="c", snapshot="incremental"),
        row(spec, table, (at, LAST, 1), None, 6),
        row(spec, table, (at, LAST, 2), "r", 0, after="x", snapshot="incremental"),
    ]

    pipeline.properties = {**pipeline.properties, "tombstones.on.delete": "false"}
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 0")
    spec = done(pipeline)
    d = commits(pipeline, table)[-1]
    assert logged(pipeline, table, spec) == [row(spec, table, (*d[1:3], 0), "d", 0, before="x", ts_us=d[3])]
