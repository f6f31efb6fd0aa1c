"""What a user installs: the wheel's files, and its command line without the equipment of a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAME = "airflow_provider_db2cdc"
UV = shutil.which("uv", path=f"{ROOT / 'build' / 'uv' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
EQUIPMENT = ("demo", "ui", "sandbox")

pytest.importorskip("hatchling", reason="the wheel is built with it: run `make setup`")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without the network by the hatchling of the environment."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder with only the wheel, as `pip install --no-deps --target` fills it."""
    if not UV:
        pytest.skip("no uv: run `make setup`")
    folder = wheel.parent / "installed"
    options = ("--quiet", "--offline", "--no-deps", "--python", sys.executable, "--target", str(folder))
    done = run(UV, "pip", "install", *options, str(wheel))
    assert done.returncode == 0, done.stderr
    return folder


def db2cdc(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command. The environment has its dependencies, and comes after the folder."""
    command = [str(installed / "bin" / "db2cdc"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(installed), "COLUMNS": "100"}
    return subprocess.run(command, cwd=installed, capture_output=True, text=True, timeout=60, env=environment)


def test_the_wheel_has_the_whole_package_without_test_equipment(names: set[str]) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / NAME).rglob("*") if path.is_file()}
    code = {name for name in files if "__pycache__" not in name}
    left_out = {name for name in code if name.split("/")[1] in ("sandbox", "demo")}
    assert len(left_out) > 40
    jobs = {f"{NAME}/spark_jobs/{path.name}" for path in (ROOT / "spark_jobs").glob("*.py")}
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == (code - left_out) | jobs


def test_the_wheel_has_its_types_its_jobs_and_its_license(names: set[str]) -> None:
    assert {f"{NAME}/py.typed", f"{NAME}/spark_jobs/apply.py", f"{NAME}/spark_jobs/connect.py"} <= names
    assert [name.rpartition(".dist-info/")[2] for name in names if name.endswith("LICENSE")] == ["licenses/LICENSE"]


def test_the_metadata_name_license_and_entry_points(wheel: Path, names: set[str]) -> None:
    [info] = {name.split("/")[0] for name in names if ".dist-info/" in name}
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read(f"{info}/METADATA"))
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert f"provider_info = {NAME}.get_provider_info:get_provider_info" in entry_points
    assert f"db2cdc = {NAME}.cli.main:main" in entry_points


def test_an_installed_command_line_lists_no_test_equipment(installed: Path) -> None:
    done = db2cdc(installed, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    listed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("│ ")}
    assert {"tick", "status", "doctor", "options", "jars", "offset"} <= listed
    assert listed.isdisjoint(EQUIPMENT)
    jars = db2cdc(installed, "jars", "--help").stdout
    assert ("--into" in jars, "--sandbox" in jars, "--kafka" in jars) == (True, False, False)


@pytest.mark.parametrize("arguments", [*([name] for name in EQUIPMENT), ["jars", "--sandbox"]], ids=" ".join)
def test_an_installed_command_line_refuses_test_equipment_in_a_sentence(installed: Path, arguments: list[str]) -> None:
    done = db2cdc(installed, *arguments)
    assert done.returncode == 2
    assert f"No such {'option' if '--sandbox' in arguments else 'command'}" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_installed_code_is_the_code_that_runs(installed: Path) -> None:
    code = f"import {NAME}, {NAME}.submit as submit; print({NAME}.__file__, submit.application_path('apply'))"
    # Without -P the working folder, which is the clone, would come first.
    done = run(sys.executable, "-P", "-c", code, PYTHONPATH=str(installed))
    assert [Path(path).is_relative_to(installed) for path in done.stdout.split()] == [True, True], done.stderr


def test_a_clone_has_the_equipment() -> None:
    command = (sys.executable, "-m", f"{NAME}.cli.main")
    listed = {line.split()[1] for line in run(*command, "--help").stdout.splitlines() if line.startswith("│ ")}
    assert {*EQUIPMENT} <= listed
    assert "--sandbox" in run(*command, "jars", "--help").stdout
