"""The retention is an age."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

BASE = {"pipeline": "p", "target": "/t"}


def retention(value: object) -> float | None:
    age = PipelineConfig.from_properties({**BASE, "change.log.retention": value}).change_log_retention
    return None if age is None else age.total_seconds()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 2_592_000), ("1D", 86_400), (" 48 h ", 172_800), ("2w", 1_209_600), ("24h", 86_400)],
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert retention(text) == seconds


def test_by_default_everything_is_kept() -> None:
    assert PipelineConfig.from_properties(BASE).change_log_retention is None
    assert retention(None) is None


@pytest.mark.parametrize("value", ["30", "d", "thirty days", "30 m", "-1d", "1.5d", 30, True, "", "30d 1h"])
def test_what_is_not_an_age_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"change\.log\.retention: the value is not an age.*30d"):
        retention(value)


@pytest.mark.parametrize("value", ["23h", "0d", "999999999w"])
def test_an_age_below_a_day_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"change\.log\.retention: the age is not between a day"):
        retention(value)
