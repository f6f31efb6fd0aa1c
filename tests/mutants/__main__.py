"""Apply each mutant to a copy of the repository and run the tests that should notice it.

python -m tests.mutants [--jobs 2] [--only TEXT]: TEXT is a part of a promise, file or line. The exit code is 1 if a
mutant survives, or if a test fails without one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from .mutant import ROOT, Mutant, read_mutants

COPIED = ("airflow_provider_db2cdc", "spark_jobs", "dags", "tests", "docs")
COPIED_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
TIMEOUT_S, SOUND_TIMEOUT_S = 900, 3600
"""Limits of one mutant's tests, and of all tests without a mutant."""


def main() -> int:
    """Run the mutants that were asked for and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested at once (default 2)")
    parser.add_argument("--only", default="", help="only mutants whose line holds this text")
    given = parser.parse_args()
    mutants = [mutant for mutant in read_mutants() if given.only in str(mutant)]
    with copies(given.jobs) as folders:
        broken = check_sound(mutants, folders)
        if broken:
            print(f"{broken} fails without a mutant: mend that first")
            return 1
        survivors = run_all(mutants, folders)
    print(f"{len(mutants)} mutants, {len(mutants) - len(survivors)} killed, {len(survivors)} survived")
    return 1 if survivors else 0


def run_all(mutants: Sequence[Mutant], folders: SimpleQueue[Path]) -> list[Mutant]:
    """Return the mutants that no test noticed; print each one's line as soon as it is known."""
    survivors: list[Mutant] = []

    def run(mutant: Mutant) -> None:
        killer = killer_of(mutant, folders)
        print(f"{'killed  ' if killer else 'SURVIVED'} {mutant}\n         by {killer or 'no test'}", flush=True)
        if not killer:
            survivors.append(mutant)

    with ThreadPoolExecutor(folders.qsize()) as pool:
        list(pool.map(run, mutants))
    return survivors


def killer_of(mutant: Mutant, folders: SimpleQueue[Path]) -> str:
    """Return the first test that fails with the mutant in the code, empty for none."""
    folder = folders.get()
    path = folder / mutant.path
    text = path.read_text("utf-8")
    try:
        path.write_text(mutant.mutated(text), "utf-8")
        return failing_test(mutant.tests, folder)
    finally:
        path.write_text(text, "utf-8")
        folders.put(folder)


def check_sound(mutants: Sequence[Mutant], folders: SimpleQueue[Path]) -> str:
    """Return a test that fails without any mutant, empty if all of those named pass."""
    named = sorted({test for mutant in mutants for test in mutant.tests})
    folder = folders.get()
    try:
        return failing_test(named, folder, SOUND_TIMEOUT_S) if named else ""
    finally:
        folders.put(folder)


def failing_test(tests: Sequence[str], folder: Path, timeout_s: int = TIMEOUT_S) -> str:
    """Run those tests in a copy that `make test` runs, until one fails, and return its name.

    A run that hangs counts as a failure.
    """
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "not long"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return f"a run that hangs (over {timeout_s} s)"
    if done.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    found = FAILED.search(done.stdout)
    return found[1] if found else done.stdout.strip().rpartition("\n")[2] or f"exit code {done.returncode}"


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Yield copies of the repository, as many as mutants are tested at once."""
    with tempfile.TemporaryDirectory(prefix="db2cdc-mutants-") as base:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            folder = Path(base) / str(number)
            for name in COPIED:
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            for name in COPIED_FILES:
                shutil.copy(ROOT / name, folder / name)
            (folder / "build").symlink_to(ROOT / "build")
            folders.put(folder)
        yield folders


if __name__ == "__main__":
    sys.exit(main())
