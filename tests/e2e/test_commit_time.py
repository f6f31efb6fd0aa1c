"""When the source committed an event: from the unit-of-work table, which all captured tables share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from support.filled import changed, filled
from support.pipeline import SOURCE_AHEAD, Pipeline

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.tick.log import now_ms

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def test_commit_times_are_utc_and_null_without_a_unit_of_work(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    tables = [filled(pipeline, 5, name) for name in ("T1", "T2")]
    pipeline.passed()
    for at in range(3):
        for table in tables:
            changed(pipeline, f"UPDATE {table} SET A = '{at}' WHERE ID = {at}")
    units = pipeline.query("SELECT IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER FROM ASNCDC.IBMSNAP_UOW")
    times = {bytes(commit).hex(): (time - SOURCE_AHEAD).replace(tzinfo=UTC).timestamp() for commit, time in units}
    lacking = pipeline.query(f'SELECT MAX(IBMSNAP_COMMITSEQ) FROM ASNCDC."CDC_{pipeline.schema}_T1"')[0][0]
    pipeline.execute(f"DELETE FROM ASNCDC.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ = X'{bytes(lacking).hex()}'")
    pipeline.writer.commit()
    before_ms = now_ms()
    result = pipeline.passed()
    assert abs(result.source_ahead_ms) < 60_000
    last = BatchLog(pipeline.spark, Layout(pipeline.target), "test").history({}).last
    assert last[tables[0]].as_of_ms >= before_ms, "the newest commit has no time"
    assert last[tables[1]].as_of_ms < before_ms
    for table in tables:
        assert len(commit_times(pipeline, table)) == 3
        for commit, ts_us in commit_times(pipeline, table).items():
            digits = commit.replace(":", "")
            expected = None if digits == bytes(lacking).hex() else times[digits]
            assert (None if ts_us is None else ts_us / 1_000_000) == expected
    check_repeated_hour(pipeline, tables[1])


def check_repeated_hour(pipeline: Pipeline, table: TableId) -> None:
    """With a zone, the order of commits decides in the hour that the end of summer time repeats."""
    pipeline.properties = {"database.time.zone": "Europe/Berlin"}
    for at in range(4):
        changed(pipeline, f"UPDATE {table} SET A = 'later {at}' WHERE ID = {at}")
    units = pipeline.query(f'SELECT DISTINCT IBMSNAP_COMMITSEQ FROM ASNCDC."CDC_{pipeline.schema}_{table.name}"')
    later = sorted(Lsn(bytes(raw)) for (raw,) in units)[-4:]
    for lsn, time in zip(later, ("01:59", "02:50", "02:10", "03:01"), strict=True):
        marker = f"TIMESTAMP('2026-10-25 {time}:00')"
        pipeline.execute(
            f"UPDATE ASNCDC.IBMSNAP_UOW SET IBMSNAP_LOGMARKER = {marker} WHERE IBMSNAP_COMMITSEQ = X'{lsn.hex}'"
        )
    pipeline.writer.commit()
    pipeline.passed()
    shown = [datetime.fromtimestamp((commit_times(pipeline, table)[str(lsn)] or 0) / 1_000_000, UTC) for lsn in later]
    assert [f"{time:%d %H:%M}" for time in shown] == ["24 23:59", "25 00:50", "25 01:10", "25 02:01"]


def commit_times(pipeline: Pipeline, table: TableId) -> dict[str, int | None]:
    """Return the time of each commit of updates, in microseconds."""
    events = pipeline.changes(table).where("op = 'u'").selectExpr("__commit_lsn", "source.ts_us").distinct()
    return {str(row[0]): row[1] for row in events.collect()}
