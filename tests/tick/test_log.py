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
from airflow_provider_db2cdc.tick.log import applied_reporter, log_progress, log_stack


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
