"""What a job prints is a line, whatever names hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_db2cdc.cdc.document import PROGRESS_MARK
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.log import applied_reporter, describe, log_progress, log_stack


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("signal a\nDB2CDC_RESULT {}", "signal a DB2CDC_RESULT {}"),
        ("a\r\nb\x85c\u2028d", "a b c d"),
        ("half a pair \ud800", "half a pair \\ud800"),
        ("Straße", "Straße"),
    ],
)
def test_logged_text_stays_on_its_line(text: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_progress(text)
    assert capsys.readouterr().out == f"{PROGRESS_MARK}{line}\n"


@pytest.fixture
def restless() -> Iterator[None]:
    """Have threads give way to each other at every turn."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_tables_applied_in_parallel_are_logged_in_the_order_of_counting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables = [TableId("S", f"T{number}") for number in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(applied_reporter(len(tables)), tables)]
    lines = re.findall(r"table=(\S+) applied: (\d+) of 2000 tables", capsys.readouterr().out)
    assert [int(number) for _, number in lines] == [*range(1, 2001)]
    assert {name for name, _ in lines} == {*map(str, tables)}


def test_a_single_table_logs_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    applied_reporter(1)(TableId("S", "A"))
    assert capsys.readouterr().out == ""


@failpoint("merge_state")
def fails() -> None:
    raise OSError("a value of a row")


def test_a_stack_has_the_frames_of_the_failure_and_none_of_a_failpoint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="value") as raised:
        fails()
    log_stack(raised.value)
    printed = capsys.readouterr().out
    assert re.fullmatch(r"  at test_log.py:\d+ < test_log.py:\d+\n", printed.removeprefix(PROGRESS_MARK))


STAGE_FAILURE = (
    "Job aborted due to stage failure: Task 4 in stage 7.0 failed 4 times, most recent failure: "
    "Lost task 4.3 in stage 7.0 (TID 16) ({place}): {cause}"
)
UNREACHABLE = (
    "com.ibm.db2.jcc.am.DisconnectNonTransientConnectionException: [jcc][t4][2043][11550][4.36.6] Exception "
    "java.net.ConnectException: Error opening socket to server db2/10.0.0.9 on port 50,000 with message: Connection "
    "refused. ERRORCODE=-4499, SQLSTATE=08001"
)


def test_an_executor_that_cannot_reach_the_source_is_named() -> None:
    text = STAGE_FAILURE.format(place="10.0.0.3 executor 0", cause=UNREACHABLE)
    assert describe(Exception(text)).startswith("the source (on executor 0 of 10.0.0.3) cannot be reached (Exception ")
    local = STAGE_FAILURE.format(place="host executor driver", cause=UNREACHABLE)
    assert describe(Exception(local)).startswith("the source cannot be reached (Exception ")


def test_the_loss_of_an_executor_is_explained() -> None:
    cause = "org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_110_0 not found!"
    text = describe(Exception(STAGE_FAILURE.format(place="10.0.0.3 executor 1", cause=cause)))
    assert text.startswith("Spark has lost an executor, and with it rows of this batch")
    assert "The next tick applies the batch." in text


def test_an_executor_is_named_with_a_cause_that_is_not_explained() -> None:
    cause = "java.io.FileNotFoundException: File file:/lake/x does not exist"
    text = describe(Exception(STAGE_FAILURE.format(place="10.0.0.3 executor 12", cause=cause)))
    assert text.endswith("; on executor 12 of 10.0.0.3.")
