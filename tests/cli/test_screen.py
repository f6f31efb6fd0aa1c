from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cli.screen import clock, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.26, "0.3 s"), (119.0, "119.0 s"), (120.0, "2 min"), (7_200, "2 h"), (200_000, "2 d")],
)
def test_span_is_shown_in_a_fitting_unit(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_clock_is_utc() -> None:
    assert clock(1_700_000_000_123) == "2023-11-14 22:13:20"
    assert clock(None) == "-"
