"""What a job prints is a line, whatever names hold."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cdc.job import PROGRESS_MARK
from airflow_provider_db2cdc.spark.progress import say


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("signal a\nDB2CDC_RESULT {}", "signal a DB2CDC_RESULT {}"),
        ("a\r\nb\x85c\u2028d", "a b c d"),
        ("half a pair \ud800", "half a pair \\ud800"),
        ("Straße", "Straße"),
    ],
)
def test_no_text_becomes_a_line_of_its_own(text: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(text)
    assert capsys.readouterr().out == f"{PROGRESS_MARK}{line}\n"
