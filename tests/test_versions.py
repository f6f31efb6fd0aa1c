"""The versions that the project claims are those that its hosted CI runs, and those of the lock."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from airflow_provider_db2cdc.submit import jars

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCK = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE))
PYTHON = "Programming Language :: Python :: 3."


def matrix() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    return list(workflow["jobs"]["test"]["strategy"]["matrix"]["include"])


def test_exactly_the_claimed_python_versions_are_tested() -> None:
    claimed = [f"3.{name.removeprefix(PYTHON)}" for name in PROJECT["classifiers"] if re.match(PYTHON + r"\d", name)]
    assert claimed == [entry["python"] for entry in matrix()]
    assert PROJECT["requires-python"] == f">={claimed[0]}"


def test_the_matrix_has_the_versions_of_the_lock() -> None:
    installed = {"airflow": LOCK["apache-airflow"], "spark": LOCK["pyspark"], "delta": LOCK["delta-spark"]}
    assert [{name: entry[name] for name in installed} for entry in matrix()] == [installed] * len(matrix())
    assert (installed["spark"], installed["delta"]) == (jars.SPARK_VERSION, jars.DELTA_VERSION)


def test_the_locks_name_no_host() -> None:
    assert LOCK
    locks = [
        path.read_text("utf-8") for folder in (ROOT, ROOT / "tests" / "production") for path in folder.glob("*.lock")
    ]
    assert len(locks) == 5
    assert re.findall(r"://|--(?:index|extra-index|find-links)\S*", "".join(locks)) == []
