"""What spark-submit starts ends with the process that called it, even where that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_db2cdc.submit.folder import job_folder
from airflow_provider_db2cdc.submit.home import spark_binary

ROOT = Path(__file__).parents[2]

SUBMIT = """#!/bin/sh
# As spark-submit does: a process of another kind stands between, and hands on neither signals nor open files.
sleep {delay}
exec {between} {job} "$@"
"""
BETWEEN = f"{sys.executable} -c 'import subprocess, sys; subprocess.run(sys.argv[1:])' {sys.executable}"
JOB = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from airflow_provider_db2cdc.spark.parent import end_with_parent
end_with_parent(Path(sys.argv[1]).parent)
# A job that ends while it writes must not leave a file without its ids.
part = Path({pid!r} + ".part")
part.write_text(f"{{os.getpid()}} {{os.getppid()}}")
part.replace({pid!r})
time.sleep({sleep})
"""
PARENT = """
import sys
from pathlib import Path
from airflow_provider_db2cdc.submit.child import run_child
from airflow_provider_db2cdc.submit.folder import job_folder
from airflow_provider_db2cdc.submit.home import spark_environment
with job_folder("{{}}") as spec:
    Path({spec!r}).write_text(str(spec))
    sys.exit(run_child([{binary!r}, str(spec)], spark_environment(), print))
"""


def started(folder: Path, delay: float = 0, sleep: float = 300, between: str = BETWEEN) -> subprocess.Popen[bytes]:
    """Start a process that runs a job by way of another one, and return it when it has begun that."""
    spec, pid = str(folder / "spec"), str(folder / "pid")
    (folder / "job.py").write_text(JOB.format(root=str(ROOT), pid=pid, sleep=sleep))
    (folder / "submit").write_text(SUBMIT.format(delay=delay, between=between, job=folder / "job.py"))
    (folder / "submit").chmod(0o755)
    code = PARENT.format(spec=spec, binary=str(folder / "submit"))
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    assert wait_for((folder / "spec").exists)
    return parent


def wait_for(condition: object, timeout_s: float = 20) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def pids_in(folder: Path) -> list[int]:
    """Return the job's process id, and that of the process between."""
    path = folder / "pid"
    assert wait_for(lambda: path.exists() and path.read_text().count(" ") == 1, 60)
    return [int(pid) for pid in path.read_text().split()]


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[None]:
    """End the job where the test has failed to."""
    yield
    for pid in pids_in(tmp_path) if (tmp_path / "pid").exists() else []:
        if not is_gone(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize(
    "between",
    [BETWEEN, pytest.param(spark_binary(), marks=[pytest.mark.spark, pytest.mark.slow])],
    ids=["any", "spark"],
)
def test_job_ends_when_its_parent_is_killed(tmp_path: Path, between: str) -> None:
    with started(tmp_path, between=between) as parent:
        pids = pids_in(tmp_path)
        time.sleep(0.5)
        assert not any(map(is_gone, pids))
        parent.kill()
    assert wait_for(lambda: all(map(is_gone, pids)), 10)


@pytest.mark.usefixtures("ended")
def test_job_that_comes_after_its_parents_death_ends_too(tmp_path: Path) -> None:
    with started(tmp_path, delay=2) as parent:
        parent.kill()
    time.sleep(4)
    assert not (tmp_path / "pid").exists() or all(map(is_gone, pids_in(tmp_path)))


def test_a_job_with_a_living_parent_ends_by_itself(tmp_path: Path) -> None:
    with started(tmp_path, sleep=0.5) as parent:
        assert parent.wait(30) == 0
    assert not Path((tmp_path / "spec").read_text()).parent.exists()


def test_folder_is_the_owners_and_goes() -> None:
    with job_folder("{}") as spec:
        assert spec.read_text() == "{}"
        assert spec.parent.stat().st_mode & 0o777 == 0o700
    assert not spec.parent.exists()
