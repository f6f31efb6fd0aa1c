"""Sessions of tables: apart from each other, and set for the rows at hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import failpoint_action
from airflow_provider_db2cdc.spark.quoting import text_literal
from airflow_provider_db2cdc.spark.session import (
    SMALL_CONF,
    SMALL_ROWS,
    TableSessions,
    conf_for_row_count,
    conf_to_read,
    kept_level,
    temporary_conf,
)

CODE, SHUFFLES = "spark.sql.codegen.factoryMode", "spark.sql.shuffle.partitions"


@pytest.fixture
def under(spark: SparkSession) -> Callable[[str, str], SparkSession]:
    """Open a table's session under an application that was submitted with a setting of its own."""

    def open_session(name: str, value: str) -> SparkSession:
        with failpoint_action("open_session", after=lambda reached: reached.result.conf.set(name, value)):
            return TableSessions(spark, "mark").session(TableId("S", "A"), 0)

    return open_session


def test_a_table_has_one_session_that_no_other_table_shares(spark: SparkSession) -> None:
    sessions = TableSessions(spark, "mark")
    one = sessions.session(TableId("S", "A"), 0)
    assert sessions.session(TableId("S", "A"), 10) is one
    other = sessions.session(TableId("S", "B"), 0)
    one.conf.set("spark.databricks.delta.write.txnAppId", "mine")
    assert other.conf.get("spark.databricks.delta.write.txnAppId", None) is None


def test_text_literals_are_read_as_written_whatever_was_submitted(
    under: Callable[[str, str], SparkSession],
) -> None:
    session = under("spark.sql.parser.escapedStringLiterals", "true")
    for text in ("a\\b", "it's", "${x}", "\\u0041"):
        assert session.sql(f"SELECT {text_literal(text)}").collect()[0][0] == text


def test_a_value_that_does_not_fit_is_an_error_whatever_was_submitted(
    under: Callable[[str, str], SparkSession],
) -> None:
    session = under("spark.sql.ansi.enabled", "false")
    with pytest.raises(PySparkException, match="CAST_OVERFLOW"):
        session.sql("SELECT CAST(300 AS TINYINT)").collect()


def test_a_file_that_is_missing_is_an_error_whatever_was_submitted(
    under: Callable[[str, str], SparkSession], tmp_path: Path
) -> None:
    session = under("spark.sql.files.ignoreMissingFiles", "true")
    session.range(9).write.parquet(str(tmp_path / "rows"))
    rows = session.read.parquet(str(tmp_path / "rows"))
    for file in (tmp_path / "rows").glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match=r"FileNotFoundException|FAILED_READ_FILE"):
        rows.collect()


def test_early_dates_are_written_unshifted_whatever_was_submitted(
    under: Callable[[str, str], SparkSession], tmp_path: Path
) -> None:
    session = under("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    session.sql("SELECT DATE '0001-01-01' AS D").write.parquet(str(tmp_path / "days"))
    found = pyarrow.parquet.read_table(str(tmp_path / "days"))
    assert found.column("D").to_pylist() == [date(1, 1, 1)]


def test_many_rows_restore_the_submitted_configuration(spark: SparkSession) -> None:
    submitted = spark.sparkContext.getConf().get(SHUFFLES)
    assert submitted not in (None, SMALL_CONF[SHUFFLES], "200"), "neither ours nor Spark's own"
    sessions = TableSessions(spark, "mark")
    for rows, wanted in ((0, "1"), (SMALL_ROWS + 1, submitted), (SMALL_ROWS, "1"), (10**9, submitted)):
        assert sessions.session(TableId("S", "A"), rows).conf.get(SHUFFLES) == wanted
    assert sessions.session(TableId("S", "NEW"), 10**9).conf.get(SHUFFLES) == submitted


def test_settings_for_few_rows_do_not_remain_for_many(spark: SparkSession) -> None:
    sessions, table, submitted = TableSessions(spark, "mark"), TableId("S", "A"), spark.newSession()
    assert {name: sessions.session(table, 0).conf.get(name) for name in SMALL_CONF} == SMALL_CONF
    assert {name: sessions.session(table, 10**9).conf.get(name) for name in SMALL_CONF} == {
        name: submitted.conf.get(name) for name in SMALL_CONF
    }


def test_a_session_for_many_rows_is_set_for_few_while_they_are_read(spark: SparkSession) -> None:
    session = TableSessions(spark, "mark").session(TableId("S", "A"), 10**9)
    before = {name: session.conf.get(name) for name in SMALL_CONF}
    assert before != SMALL_CONF
    with suppress(ZeroDivisionError), conf_for_row_count(session, SMALL_ROWS):
        assert {name: session.conf.get(name) for name in SMALL_CONF} == SMALL_CONF
        raise ZeroDivisionError
    assert {name: session.conf.get(name) for name in SMALL_CONF} == before


@pytest.mark.parametrize(("master", "copies"), [("local[2]", 1), ("spark://host:7077", 2), ("yarn", 2)])
def test_rows_that_cannot_be_read_twice_are_on_disk_and_on_two_executors(master: str, copies: int) -> None:
    levels = [kept_level(master, is_few) for is_few in (True, False)]
    assert [(level.useDisk, level.useMemory, level.replication) for level in levels] == [
        (True, True, copies),
        (True, False, copies),
    ]


@pytest.mark.parametrize("rows", [None, SMALL_ROWS + 1])
def test_a_session_stays_set_for_many_rows_if_they_may_come(spark: SparkSession, rows: int | None) -> None:
    session = TableSessions(spark, "mark").session(TableId("S", "A"), 10**9)
    before = {name: session.conf.get(name) for name in SMALL_CONF}
    with conf_for_row_count(session, rows):
        assert {name: session.conf.get(name) for name in SMALL_CONF} == before


def test_a_temporary_setting_is_removed_afterwards(spark: SparkSession) -> None:
    session = spark.newSession()
    with temporary_conf(session, {"db2cdc.test": "1"}):
        assert session.conf.get("db2cdc.test") == "1"
    assert session.conf.get("db2cdc.test", None) is None


def test_no_code_is_generated_for_few_rows_whatever_was_submitted(
    under: Callable[[str, str], SparkSession], spark: SparkSession
) -> None:
    session = under(CODE, "CODEGEN_ONLY")
    assert _projection(session, spark) == "InterpretedUnsafeProjection"
    session.conf.set(CODE, "CODEGEN_ONLY")
    assert _projection(session, spark) == "SpecificUnsafeProjection"


def _projection(session: SparkSession, before: SparkSession) -> str:
    """Return the kind of projection that Spark makes for a row where a session is the active one."""
    jvm: Any = session._jvm
    schema = session.range(1)._jdf.schema()
    projections = getattr(jvm.org.apache.spark.sql.catalyst.expressions, "UnsafeProjection$")
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
    made = getattr(projections, "MODULE$").create(schema).getClass().getSimpleName()
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(before._jsparkSession)
    return str(made)


def test_code_that_reads_many_rows_is_compiled(spark: SparkSession) -> None:
    session = TableSessions(spark, "mark").session(TableId("S", "COMPILED"), 0)
    assert conf_to_read(200_000) == {}
    with temporary_conf(session, conf_to_read(200_001)):
        assert session.conf.get("spark.sql.codegen.wholeStage") == "true"
        assert session.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"
    assert session.conf.get("spark.sql.codegen.wholeStage") == "false"
