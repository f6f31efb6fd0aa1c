"""Python environments other than the project's own, for tests with another Airflow or executor."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.program import ROOT

UV = ROOT / "build" / "uv" / "bin" / "uv"
INSTALL_TIMEOUT_S = 900


def installed_python(name: str) -> str:
    """Return the Python of build/<name>, where `tests/production/<name>.lock` and this package are installed.

    The first call installs them. If that cannot be done, the test is skipped and says why.
    """
    lock, folder = ROOT / "tests" / "production" / f"{name}.lock", ROOT / "build" / name
    python, stamp = folder / "bin" / "python", folder / "installed.lock"
    if stamp.is_file() and stamp.read_text() == lock.read_text():
        return str(python)
    for arguments in (
        ["venv", "--quiet", "--allow-existing", "--python", "3.11", str(folder)],
        ["pip", "sync", "--quiet", "--python", str(python), str(lock)],
        ["pip", "install", "--quiet", "--python", str(python), "--no-deps", "--editable", str(ROOT)],
    ):
        _run(name, arguments)
    stamp.write_text(lock.read_text())
    return str(python)


def version_of(python: str, package: str) -> str:
    """Return the version of a package in an environment."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _run(name: str, arguments: list[str]) -> None:
    if not Path(UV).is_file():
        pytest.skip(f"NOT RUN: {name} is not installed, because {UV} is missing: run `make setup`")
    done = subprocess.run([str(UV), *arguments], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if done.returncode:
        pytest.skip(f"NOT RUN: {name} cannot be installed: {done.stderr[-600:]}")
