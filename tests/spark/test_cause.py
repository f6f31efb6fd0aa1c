"""The cause of a failure is reported in a line without row values. Its stack is in a separate file."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.document import ERROR_LOG_ENV, PASSWORD_ENV, USER_ENV
from airflow_provider_db2cdc.cdc.job import SourceSpec
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource, driver_connection
from airflow_provider_db2cdc.tick.log import describe

pytestmark = pytest.mark.spark


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ERROR_LOG_ENV, str(tmp_path / "run.log"))
    monkeypatch.setenv(USER_ENV, "cdc")
    monkeypatch.setenv(PASSWORD_ENV, "s3cret-pw")
    return tmp_path / "run.log"


def failed(step: Callable[[], Any]) -> str:
    """Return the reported cause of a step that fails."""
    try:
        step()
    except Exception as error:
        return describe(error)
    raise AssertionError("it did not fail")


def test_full_disk_comes_first_with_its_remedy(spark: SparkSession, log: Path) -> None:
    def fill() -> None:
        stream = spark._jvm.java.io.FileOutputStream("/dev/full")  # type: ignore[union-attr]
        stream.write(bytearray(b"x"))

    told = failed(fill)
    assert told.startswith("a disk is full (IOException: No space left on device). Free space in the target")
    assert told.endswith(f"The stack is in {log}.")


def test_full_disk_in_python_is_reported_alike(log: Path) -> None:
    def fill() -> None:
        with Path("/dev/full").open("w") as file:
            file.write("x")

    assert failed(fill).startswith("a disk is full (OSError: [Errno 28] No space left on device). Free space")


def test_value_of_a_row_is_in_the_log_of_its_owner_only(spark: SparkSession, log: Path) -> None:
    told = failed(lambda: spark.sql("SELECT CAST(v AS INT) FROM VALUES ('hush-hush') AS t(v)").collect())
    assert "hush" not in told
    assert "condition CAST_INVALID_INPUT" in told
    assert told.endswith(f"The stack is in {log}.")
    kept = log.read_text()
    assert "hush-hush" in kept
    assert "test_cause.py" in kept
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_lost_file_is_named(spark: SparkSession, tmp_path: Path, log: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "t"))
    frame = spark.read.parquet(str(tmp_path / "t"))
    for path in (tmp_path / "t").glob("*.parquet"):
        path.unlink()
    told = failed(frame.collect)
    assert "FileNotFoundException" in told
    assert ".parquet" in told


def test_unreachable_source_has_the_remedy_that_ibm_db_has(spark: SparkSession, log: Path) -> None:
    source = JdbcSource(SourceSpec("jdbc:db2://127.0.0.1:1/D:securityMechanism=3;", "D", "p", "ASNCDC"))

    def ask() -> None:
        with driver_connection(spark, source):
            pass

    for step in (ask, lambda: source.frame(spark, "SELECT 1 FROM SYSIBM.SYSDUMMY1")):
        told = failed(step)
        assert told.startswith("the source cannot be reached (Exception java.net.ConnectException: Error opening")
        assert "Check host and port" in told


JCC_CHARS = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0 in stage 3.0 (h executor 1): \
com.ibm.db2.jcc.am.SqlException: [jcc][t4][1065][12306] Caught java.io.CharConversionException. ERRORCODE=-4220, \
SQLSTATE=null
\tat com.ibm.db2.jcc.am.b.a(b.java:1)
Caused by: java.nio.charset.MalformedInputException: Input length = 1
\t... 9 more
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            JCC_CHARS,
            "MalformedInputException: Input length = 1 (in SparkException <- SqlException <- CharConversionException); "
            "ERRORCODE -4220 SQLSTATE null.",
        ),
        (
            "x\n: a.b.SparkException: Job aborted\nCaused by: com.fasterxml.jackson.core.JsonParseException: 'hush'",
            "RuntimeError <- SparkException <- JsonParseException.",
        ),
        (
            "\n: a.b.SparkException: Lost task (h executor 1): java.io.IOException: No space left on device\n\tat a",
            "a disk is full (IOException: No space left on device (in SparkException)). Free space in the target and "
            "in Spark's local folders (spark.local.dir, by default /tmp). Then run the tick again.",
        ),
        (
            "\n: a.b.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_4_0 not found!",
            "Spark has lost an executor, and with it rows of this batch that no other executor held. The next tick "
            "applies the batch. If it happens often, read in the logs of the executors why they end.",
        ),
        (
            "\n: a.b.SparkException: Job aborted due to stage failure: Task 0 in stage 5.0 failed 4 times, most recent "
            "failure: Lost task 0.3 in stage 5.0 (TID 22) (127.0.0.2 executor 1): ExecutorLostFailure (executor 1 "
            "exited caused by one of the running tasks) Reason: Command exited with code 52",
            "Spark ran out of memory (on executor 1 of 127.0.0.2). Raise spark.executor.memory in spark.conf, or let "
            "fewer tasks share it (spark.executor.cores).",
        ),
        (
            "\n: a.b.SparkException: Job aborted due to stage failure: Total size of serialized results of 4 tasks "
            "(1024.1 MiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)",
            "Spark's driver ran out of memory. Raise spark.driver.memory in spark.conf, or lower max.rows.per.batch.",
        ),
        (
            "x\nCaused by: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "Spark has no client for the target's store: the class org.apache.hadoop.fs.s3a.S3AFileSystem is missing. "
            "Fetch its jars with `db2cdc jars --with s3`. For another store, name them in spark.packages.",
        ),
        (
            "x\n: java.nio.file.AccessDeniedException: s3a://lake/t: org.apache.hadoop.fs.s3a.auth."
            "NoAwsCredentialsException: no login",
            "the target's store refuses the login, or there is none. Give the job credentials by the connection of "
            "`store_conn_id`, the environment or the machine's role.",
        ),
        (
            "x\n: org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://lake/': Bucket does not exist",
            "the target's bucket does not exist. Create it, or correct `target`.",
        ),
        (
            ": com.ibm.db2.jcc.am.SqlDataException: SQL Error: SQLCODE=-420, SQLSTATE=22018, SQLERRMC=hush, DRIVER=4",
            "RuntimeError <- SqlDataException; SQLCODE -420 SQLSTATE 22018.",
        ),
    ],
)
def test_innermost_cause_is_reported_if_it_quotes_no_value(
    monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    monkeypatch.delenv(ERROR_LOG_ENV, raising=False)

    def fail() -> None:
        raise RuntimeError(text)

    assert failed(fail) == told


def test_several_failures_share_the_log(spark: SparkSession, log: Path) -> None:
    for name in ("one", "two"):
        failed(lambda name=name: spark.sql(f"SELECT no_such_{name}").collect())  # type: ignore[misc]
    assert {"no_such_one", "no_such_two"} <= {*log.read_text().replace("`", " ").split()}


def test_secrets_are_in_neither(log: Path) -> None:
    def connect() -> None:
        raise OSError("GET https://lake/x?sv=1&sig=abc password=s3cret-pw token=t0k")

    told = failed(connect)
    assert "OSError: GET https://lake/x... ... ..." in told
    assert "s3cret" not in told + log.read_text()


def test_unwritable_error_log_does_not_replace_the_failure(log: Path) -> None:
    log.mkdir()

    def fail() -> None:
        raise KeyError("hush")

    told = failed(fail)
    assert told == f"KeyError. The stack could not be kept in {log}: Is a directory."


def test_without_an_error_log_none_is_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ERROR_LOG_ENV, raising=False)

    def fail() -> None:
        raise KeyError("hush")

    assert failed(fail) == "KeyError."
