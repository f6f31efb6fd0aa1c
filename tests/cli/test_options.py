from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_db2cdc.cli.options import SECTIONS, options_page, run
from airflow_provider_db2cdc.config.properties import ALIASES, PROPERTIES, USED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "options.md"


def test_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    assert capsys.readouterr().out == PAGE.read_text("utf-8"), (
        "write it again: db2cdc options > docs/reference/options.md"
    )


def test_every_property_stands_there_once() -> None:
    cells = re.findall(r"^\| (.*?) \|", options_page(), re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted([*PROPERTIES, *ALIASES])


def test_every_section_has_something() -> None:
    first = {item.name.split(".")[0] for item in USED}
    assert {word for words in SECTIONS.values() for word in words} == first
