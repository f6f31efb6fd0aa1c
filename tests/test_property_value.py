from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from typing import Literal, get_args

import pytest
from support.properties import config, refusal

from airflow_provider_db2cdc.config.pipeline import DatabaseConfig, PipelineConfig
from airflow_provider_db2cdc.config.properties import PROPERTIES, USED
from airflow_provider_db2cdc.errors import ConfigurationError

NAMES = {item.field: item.name for item in USED}
LISTED = {
    NAMES[field]: (field, get_args(info.annotation))
    for field, info in PipelineConfig.model_fields.items()
    if getattr(info.annotation, "__origin__", None) is Literal
}
"""Properties of which the words that they take are listed: the field, and the words."""


def test_properties_with_values_are_found() -> None:
    assert {"snapshot.mode", "snapshot.isolation.mode", "key.change.detection"} < LISTED.keys()


@pytest.mark.parametrize("name", LISTED)
def test_listed_words_are_accepted_with_blanks_and_in_any_case(name: str) -> None:
    field, words = LISTED[name]
    for word in words:
        assert getattr(config(**{name: f" {word.title()}"}), field) == word


def test_old_names_of_modes_are_accepted() -> None:
    assert config(**{"snapshot.mode": "Schema_Only "}).snapshot_mode == "no_data"


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("value", [["initial"], 5, True, ""], ids=repr)
def test_value_that_is_not_a_listed_word_is_refused_by_name(name: str, value: object) -> None:
    assert f"{name}: write one of '" in refusal(**{name: value})


FIELDS = {**PipelineConfig.model_fields, "database.port": DatabaseConfig.model_fields["port"]}
NUMBERS = [NAMES[field] for field, info in FIELDS.items() if re.search(r"\b(?:int|float)\b", repr(info.annotation))]
ADDRESS = {"database.hostname": "h", "database.dbname": "D", "database.user": "u", "database.password": "p"}


def test_wrong_numbers_are_refused() -> None:
    assert {"max.rows.per.batch", "snapshot.chunk.bytes", "snapshot.budget.s", "database.port"} < set(NUMBERS)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_not_a_number(name: str, value: bool) -> None:
    assert f"{name}: give a number" in refusal(**ADDRESS, **{name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), "inf", "Infinity", "nan"])
def test_infinity_and_nan_are_not_numbers(name: str, value: object) -> None:
    assert name in refusal(**ADDRESS, **{name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [7, "7", 7.0])
def test_a_number_may_be_a_text(name: str, value: object) -> None:
    assert config(**ADDRESS, **{name: value}) == config(**ADDRESS, **{name: 7})


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_has_its_bounds(name: str) -> None:
    assert f"{name}: Input should be greater than" in refusal(**ADDRESS, **{name: -1})


ODD = [
    [],
    ["a"],
    [["a"]],
    {},
    {"a": {"b": 1}},
    5,
    -1,
    1.5,
    True,
    "",
    " ",
    "\0",
    None,
    date(2026, 1, 2),
    float("nan"),
    b"a",
]


@pytest.mark.parametrize("name", [item.name.replace("*", "S.T") for item in PROPERTIES.values()])
def test_any_value_is_accepted_or_refused(name: str) -> None:
    for value in ODD:
        with suppress(ConfigurationError):
            config(**{**ADDRESS, "snapshot.select.statement.overrides": "S.T", name: value})
