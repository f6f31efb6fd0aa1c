from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_provider_db2cdc.submit import LOG4J, application_path
from airflow_provider_db2cdc.submit.bundle import build_bundle
from airflow_provider_db2cdc.submit.child import run_child
from airflow_provider_db2cdc.submit.command import Submission, spark_conf, submit_argv
from airflow_provider_db2cdc.submit.home import spark_binary, spark_environment

IMPORT_PURE = """
import sys, importlib, pkgutil, zipfile
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"airflow", "ibm_db", "ibm_db_dbi", "pydantic", "typer", "rich", "yaml", "pyspark"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
for name in zipfile.ZipFile(sys.argv[1]).namelist():
    if "/spark/" not in name:
        module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        found = importlib.import_module(module)
        assert found.__file__.startswith(sys.argv[1]), found.__file__
print("imported")
"""

APPLICATION = """
from airflow_provider_db2cdc.cdc import job
import delta.tables
print("DB2CDC_RESULT " + job.__file__)
"""


def outside() -> dict[str, str]:
    """Return an environment in which the package cannot be found by chance."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_same_content_is_the_same_file_byte_by_byte(tmp_path: Path) -> None:
    first, second = build_bundle(tmp_path / "a"), build_bundle(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_a_built_bundle_is_kept(tmp_path: Path) -> None:
    stamp = build_bundle(tmp_path).stat().st_mtime_ns
    assert build_bundle(tmp_path).stat().st_mtime_ns == stamp
    assert len(list(tmp_path.iterdir())) == 1


def test_it_holds_the_pure_and_the_spark_side_only(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_bundle(tmp_path)).namelist()
    parts = {name.removeprefix("airflow_provider_db2cdc/").split("/")[0] for name in names}
    assert parts == {"__init__.py", "version.py", "errors.py", "failpoint.py", "cdc", "sql", "tick", "verify", "spark"}


def test_it_holds_all_that_its_modules_and_the_jobs_import(tmp_path: Path) -> None:
    archive = zipfile.ZipFile(build_bundle(tmp_path))
    texts = [archive.read(name).decode() for name in archive.namelist()]
    texts += [path.read_text("utf-8") for path in application_path().parent.glob("*.py")]
    imported = {name for text in texts for name in re.findall(r"^from airflow_provider_db2cdc\.([\w.]+) ", text, re.M)}
    held = {name.removeprefix("airflow_provider_db2cdc/").removesuffix(".py") for name in archive.namelist()}
    assert {name.replace(".", "/") for name in imported} <= held | {name.removesuffix("/__init__") for name in held}


def test_it_imports_without_other_packages(tmp_path: Path) -> None:
    bundle = build_bundle(tmp_path)
    command = [sys.executable, "-c", IMPORT_PURE, str(bundle)]
    done = subprocess.run(command, cwd=tmp_path, env=outside(), capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "imported", done.stderr


def test_entry_script_is_found() -> None:
    assert application_path().name == "apply.py"
    assert LOG4J.is_file()


@pytest.mark.spark
def test_spark_submit_imports_it_and_says_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    application = tmp_path / "app.py"
    application.write_text(APPLICATION)
    bundle = build_bundle(tmp_path)
    submission = Submission(str(application), (), (str(bundle),), spark_conf(log4j=LOG4J), "local[1]")
    lines: list[str] = []
    env = spark_environment(environ=outside())
    assert run_child(submit_argv(spark_binary(), submission), env, lines.append) == 0, lines
    results = [line for line in lines if line.startswith("DB2CDC_RESULT ")]
    assert results
    assert bundle.name in results[0]
    assert len(lines) < 10, lines
