"""Verifications end to end: types, keys, planted damage, changes that wait, and the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Row
from support.command_line import Command
from support.crash import killed
from support.pipeline import Pipeline
from support.submitted import config_file

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict, VerifyResult
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.source.planning.verification import VerifyRequest, plan_verification
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.verify import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

TYPES = (
    "ID INTEGER NOT NULL, PART SMALLINT NOT NULL, R REAL, D DOUBLE, N DECIMAL(9,2), C CHAR(5), V VARCHAR(9), "
    "B CHAR(3) FOR BIT DATA, T TIMESTAMP, Y DATE, H TIME, PRIMARY KEY (ID, PART)"
)
WORDS = "NAME VARCHAR(9) NOT NULL PRIMARY KEY, A INTEGER"
ROWS = 24


def verify(pipeline: Pipeline, *names: str, id_: str = "v", **more: Any) -> VerifyResult:
    with pipeline.source() as source:
        spec = plan_verification(source, pipeline.config, VerifyRequest(id_, names, **more))
    return job.run(spec)


def begin(new_pipeline: Callable[..., Pipeline]) -> tuple[Pipeline, TableId, TableId]:
    """A table of many types, cut into chunks of five rows, and one with a key of text, both in the target."""
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 5, "snapshot.group.chunks": 2})
    ddl = f"CREATE TABLE {pipeline.schema}.TYPED ({TYPES})"
    typed = pipeline.create(ddl, "TYPED", update_as="U", before_img_prefix="X")
    words = pipeline.create(f"CREATE TABLE {pipeline.schema}.WORDS ({WORDS})", "WORDS")
    some = "1.5, 0.0, 12.50, 'ab', 'a', X'010203', '2026-01-02 03:04:05.123456', '2026-01-02', '24:00:00'"
    for at in range(ROWS):
        values = some if at % 3 else ", ".join(["NULL"] * 9)
        pipeline.execute(f"INSERT INTO {typed} VALUES ({at // 2}, {at % 2}, {values})")
        pipeline.execute(f"INSERT INTO {words} VALUES ('{'aBc'[at % 3]}{at}', {at})")
    pipeline.writer.commit()
    pipeline.captured()
    pipeline.passed()
    return pipeline, typed, words


def damage(pipeline: Pipeline, table: TableId, *statements: str) -> None:
    """Change a state, as an error of ours would."""
    name = f"delta.`{Layout(pipeline.target).state(table).name}`"
    for statement in statements:
        pipeline.spark.sql(statement.replace("{}", name))


def by_table(result: VerifyResult) -> dict[str, TableVerdict]:
    return {verdict.table.name: verdict for verdict in result.tables}


def test_verifications_find_damage_and_nothing_else(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline, typed, words = begin(new_pipeline)
    first = verify(pipeline)
    assert [(verdict.status, verdict.source_rows, verdict.error) for verdict in first.tables] == [
        ("equal", ROWS, "")
    ] * 2
    # Changes that no tick has applied yet are not differences.
    pipeline.execute(f"UPDATE {typed} SET V = 'b', ID = 90 WHERE ID = 3")
    pipeline.execute(f"DELETE FROM {words} WHERE A = 4")
    pipeline.writer.commit()
    waiting = by_table(verify(pipeline, id_="waiting"))
    assert {name: (verdict.status, verdict.error) for name, verdict in waiting.items()} == {
        "TYPED": ("equal", ""),
        "WORDS": ("equal", ""),
    }
    assert (waiting["TYPED"].keys_changed, waiting["WORDS"].keys_changed) == (4, 1)
    damage(
        pipeline,
        typed,
        "DELETE FROM {} WHERE ID = 5",
        "UPDATE {} SET D = CAST('-0.0' AS DOUBLE) WHERE ID = 0 AND PART = 1",
        "UPDATE {} SET N = NULL, R = 12.5 WHERE ID = 8 AND PART = 1",
        "INSERT INTO {} SELECT 50, PART, R, D, N, C, V, B, T, Y, H, __commit_lsn, __batch FROM {} WHERE ID = 1",
    )
    damage(pipeline, words, "UPDATE {} SET A = 99 WHERE NAME = 'B1'", "DELETE FROM {} WHERE NAME = 'c2'")
    found = by_table(verify(pipeline, id_="damaged", show_keys=True))
    check_typed(found["TYPED"])
    assert (found["WORDS"].missing, found["WORDS"].surplus, found["WORDS"].different) == (1, 0, 1)
    assert [(place.low, place.high) for place in found["WORDS"].ranges] == [((), ())]
    counted = by_table(verify(pipeline, id_="counted", quick=True))
    # Four keys of each are in change rows: each may explain a row.
    assert counted["WORDS"].status == "equal"
    check_report(pipeline, typed)


def check_typed(verdict: TableVerdict) -> None:
    assert (verdict.status, verdict.missing, verdict.surplus, verdict.different) == ("different", 2, 2, 2)
    places = [(place.first, place.missing, place.surplus, place.different) for place in verdict.ranges]
    assert places == [(0, 0, 0, 1), (1, 2, 0, 0), (3, 0, 0, 1), (4, 0, 2, 0)]
    assert (verdict.ranges[1].low, verdict.ranges[1].high) == (("2", "0"), ("5", "1"))


def check_report(pipeline: Pipeline, table: TableId) -> None:
    report = load(pipeline.spark, Layout(pipeline.target).internal("verifications"))
    rows = report.where(f"verification = 'damaged' AND table = '{table.name}'").orderBy("started_at_ms").collect()
    assert [row["status"] for row in rows] == ["begun", "different", "different", "different"]
    assert [(row["first_chunk"], row["last_chunk"], row["reads"]) for row in rows[1:]] == [
        (0, 1, 2),
        (2, 3, 2),
        (4, 4, 2),
    ]
    place = Row(first=1, last=1, low=["2", "0"], high=["5", "1"], missing=2, surplus=0, different=0)
    assert rows[1]["differences"][1] == place


def test_a_killed_verification_continues_and_a_submitted_one_counts(
    new_pipeline: Callable[..., Pipeline], db2cdc: Command
) -> None:
    pipeline, typed, _ = begin(new_pipeline)
    damage(pipeline, typed, "DELETE FROM {} WHERE ID = 0")
    with killed("append_verified", "after", at=2):
        verify(pipeline, str(typed))
    verdict = verify(pipeline, str(typed)).tables[0]
    assert (verdict.missing, verdict.chunks_compared, verdict.source_rows) == (2, 5, ROWS)
    report = load(pipeline.spark, Layout(pipeline.target).internal("verifications"))
    assert report.where("status <> 'begun'").count() == 3
    done = db2cdc("verify", "--config", config_file(pipeline), "--id", "v", "--quick", "--json", str(typed))
    assert done.stdout, done.stderr
    [counted] = json.loads(done.stdout)["tables"]
    assert (done.returncode, counted["missing"], counted["status"]) == (1, 2, "different")
    assert f"{typed} differs from its source: 2 missing rows" in done.stderr


def test_a_target_without_a_tick_is_refused(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    pipeline.create(f"CREATE TABLE {pipeline.schema}.WORDS ({WORDS})", "WORDS")
    pipeline.captured()
    with pytest.raises(TargetError, match=r"has written nothing to .* yet\. Run a tick"):
        verify(pipeline)
