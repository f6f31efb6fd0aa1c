import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import psutil
import pytest
from support.program import ROOT, wait_for

from airflow_provider_db2cdc.demo.child import Child

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
FAMILY = f"""
import subprocess, sys, os, signal
mode = sys.argv[1]
grandchild = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE, process_group=0)
grandchild.stdout.readline()
print(grandchild.pid, flush=True)
if mode == "orphan":
    os.kill(os.getpid(), signal.SIGKILL)
grandchild.wait()
"""


KILLED = """
import os, signal, sys
from pathlib import Path
from airflow_provider_db2cdc.demo.child import Child
child = Child([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], os.environ, Path("."))
child.process.stdout.readline()
print(child.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def output_of(child: Child) -> IO[bytes]:
    assert child.process.stdout is not None
    return child.process.stdout


@pytest.mark.parametrize("mode", ["parent", "orphan"])
def test_a_stubborn_grandchild_ends_with_its_child_even_when_that_is_dead(tmp_path: Path, mode: str) -> None:
    with Child([sys.executable, "-c", FAMILY, mode], os.environ, tmp_path) as child:
        grandchild = psutil.Process(int(output_of(child).readline()))
        if mode == "orphan":
            child.process.wait(10)
        assert grandchild.is_running()
        child.end(1)
        assert not child.running
        assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
def test_a_child_ends_with_a_program_that_is_killed() -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, capture_output=True, text=True, check=False)
    wait_for(lambda: not psutil.pid_exists(int(killed.stdout)), 10)


def test_a_child_reads_lines_and_its_output_can_go_to_a_file(tmp_path: Path) -> None:
    code = "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)"
    log = tmp_path / "log"
    with Child([sys.executable, "-c", code], os.environ, tmp_path, log) as child:
        child.tell("something")
        deadline = time.monotonic() + 10
        while not log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert log.read_text() == "heard something\n"


def test_to_tell_a_dead_child_does_nothing(tmp_path: Path) -> None:
    with Child([sys.executable, "-c", ""], os.environ, tmp_path) as child:
        child.process.wait(10)
        child.tell("anybody?")


def test_a_child_that_hears_no_more_may_end_by_itself(tmp_path: Path) -> None:
    code = "import sys\nfor line in sys.stdin: pass\nprint('done', flush=True)"
    with Child([sys.executable, "-c", code], os.environ, tmp_path) as child:
        child.hang_up(10)
        assert (child.process.poll(), output_of(child).read()) == (0, b"done\n")
