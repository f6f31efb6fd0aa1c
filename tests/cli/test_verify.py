"""What `db2cdc verify` shows of a result."""

from __future__ import annotations

import json

import pytest

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict, VerifyResult
from airflow_provider_db2cdc.cli.verify import new_id, show

PLACE = ChunkDifference(1, 1, ("10",), ("20",), missing=2)
RESULT = VerifyResult(
    "p",
    "v7",
    (
        TableVerdict(TableId("S", "A"), "equal", 12, 12, keys_changed=3, chunks=4, chunks_compared=4, duration_s=2.0),
        TableVerdict(TableId("S", "B"), "different", 12, 10, missing=2, chunks=4, chunks_compared=4, ranges=(PLACE,)),
        TableVerdict(TableId("S", "C"), "excluded", error="it has no key."),
    ),
)


def test_a_table_shows_counts_and_places(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, as_json=False)
    shown = capsys.readouterr()
    [equal] = [line for line in shown.out.splitlines() if "S.A" in line]
    assert [cell.strip() for cell in equal.strip("│").split("│")] == [
        "S.A", "equal", "12", "12", "", "", "", "3", "4 of 4", "2.0 s",
    ]  # fmt: skip
    assert "p: verification v7" in shown.out
    assert "S.B chunk 1: after (10) up to (20): 2 missing, 0 surplus, 0 different" in shown.err
    assert "S.C is not verified: it has no key." in shown.err


def test_json_has_the_whole_result_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, as_json=True)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["tables"][1]["ranges"][0]["low"] == ["10"]
    assert shown.err == ""


def test_a_verification_without_an_id_gets_one() -> None:
    assert new_id().startswith("cli__20")
