"""`db2cdc demo --cluster`, as `make cluster` starts it: through Airflow's Spark connection."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.program import RUN_TIMEOUT_S, started

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_the_demo_ends_with_equal_tables_and_no_node_left(tmp_path: Path) -> None:
    options = ("--cluster", "--rows", "300", "--ticks", "1", "--seconds-per-tick", "2")
    with started(tmp_path / "demo", "demo", *options) as demo:
        assert demo.process.wait(RUN_TIMEOUT_S) == 0, demo.screen
        assert re.findall(r"EQUAL|DIFFERENT", demo.screen) == ["EQUAL"] * 3
        assert set(re.findall(r"127\.0\.0\.\d(?= │ +[1-9])", demo.screen)) == {"127.0.0.2", "127.0.0.3"}
        assert demo.left() == []
    logs = "".join(log.read_text(errors="replace") for log in (tmp_path / "demo" / "logs").glob("runs.log"))
    assert "--master spark://127.0.0.1:" in logs
