from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.import_path import load_class


def test_class_is_found_by_its_module_and_name() -> None:
    assert load_class("pathlib:PurePosixPath", "a.property", "hint") is PurePosixPath


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "Empty module name"),
        (":Class", "Empty module name"),
        ("json", "has no attribute ''"),
        ("json:Nothing", "has no attribute 'Nothing'"),
        ("no.such.module:Class", "No module named 'no'"),
        (".relative:Class", "relative import"),
        ("json:__name__", "but a str"),
    ],
)
def test_text_that_names_no_class_is_refused_with_the_property_and_a_hint(path: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_class(path, "a.property", "Write another.")
    assert str(caught.value).startswith(f"a.property: {path!r} names no class")
    assert reason in caught.value.problem
    assert caught.value.remedy == "Write another."


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise RuntimeError('not today')", "cannot be imported (RuntimeError: not today)"),
        ("class Broken(:", "cannot be imported (SyntaxError: invalid syntax"),
        ("1 / 0", "cannot be imported (ZeroDivisionError: division by zero)"),
        ("import sys\nsys.exit(3)", "cannot be imported (SystemExit: 3)"),
        ("import no.such.module", "names no class (No module named 'no')"),
        ("raise ValueError('not today')", "names no class (not today)"),
    ],
)
def test_module_that_cannot_be_imported_is_named(
    source: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path.name
    (tmp_path / f"{module}.py").write_text(f"{source}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_class(f"{module}:Class", "a.property", "Write another.")
    assert f"a.property: '{module}:Class' {problem}" in str(caught.value)
