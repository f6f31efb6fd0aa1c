"""A real sandbox for the tests of this folder, and IBM's JDBC driver run against it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_db2cdc.sandbox.server.service import Sandbox

_ROOT = Path(__file__).parents[2]
_DRIVER_CHECK = Path(__file__).parent / "DriverCheck.java"
_JAVA_TIMEOUT_S = 60
PASSWORD = "p='}{x"  # every character that a driver can carry and that a careless program would trip over

JccRun = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def sandbox_jars() -> str:
    """The folder of Derby's jars."""
    folder = Path(os.environ.get("DB2CDC_JARS") or _ROOT / "build" / "jars") / "sandbox"
    if not list(folder.glob("*derbynet*.jar")):
        pytest.skip(f"no Derby jars in {folder}: fetch them with `db2cdc jars --sandbox --into build/jars`")
    return str(folder)


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory, sandbox_jars: str) -> Iterator[Sandbox]:
    """A running sandbox without a capture agent, shared by all tests of the session."""
    folder = tmp_path_factory.mktemp("sandbox")
    with Sandbox.start(folder, capture=False, password=PASSWORD, jars=sandbox_jars, health_interval_s=1.0) as running:
        yield running


@pytest.fixture(scope="session")
def jcc() -> JccRun:
    """Run a scenario of DriverCheck.java through IBM's JDBC driver; return what it found out, by name."""
    jars = list((_ROOT / "build" / "jars" / "spark").glob("*jcc*.jar"))
    if not jars:
        pytest.skip("no JCC jar in build/jars/spark")

    def run(target: Sandbox, scenario: str, *arguments: str) -> dict[str, str]:
        command = ["java", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", "-cp", str(jars[0]), str(_DRIVER_CHECK)]
        done = subprocess.run(
            [*command, target.jdbc_url(), target.user, target.password, scenario, *arguments],
            capture_output=True,
            text=True,
            timeout=_JAVA_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(line.split("=", 1) for line in done.stdout.splitlines())

    return run
