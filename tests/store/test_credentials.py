"""The login to the store: it is in the environment of the job's processes, and in nothing that others can read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.object_store import SECRET_KEY
from support.stored import StoredPipeline, filled

from airflow_provider_db2cdc.demo.cluster.spread import event_log_conf

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1200)]


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """Collect the command lines of all processes of this machine within a block."""
    found: set[str] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.2):
            for process in psutil.process_iter(["cmdline"]):
                found.add(" ".join(process.info["cmdline"] or ()))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        is_over.set()
        looking.join()


def files_with(folder: Path, text: str) -> list[str]:
    """Return the files below a folder that hold a text."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_the_stores_secret_is_in_no_argument_output_or_file(
    new_stored: Callable[..., StoredPipeline], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = new_stored()
    events = pipeline.folder / "events"
    events.mkdir()
    pipeline.more_conf = event_log_conf(events)
    monkeypatch.setenv("DB2CDC_LOGS", str(pipeline.folder / "logs"))
    filled(pipeline)
    with command_lines() as lines:
        done = pipeline.run("tick", "--progress", "--json")
    assert done.returncode == 0, done.stderr
    assert any("spark-submit" in line.lower() or "SparkSubmit" in line for line in lines)
    assert not [line for line in lines if SECRET_KEY in line]
    assert SECRET_KEY not in done.stdout + done.stderr
    assert files_with(events, "SparkListenerEnvironmentUpdate") != []
    assert files_with(tmp_path, SECRET_KEY) == []


def test_a_wrong_login_says_what_to_do_without_the_secret(
    new_stored: Callable[..., StoredPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_stored()
    filled(pipeline)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    done = pipeline.run("tick")
    assert done.returncode == 1
    assert "store_conn_id" in done.stderr, done.stderr
    assert SECRET_KEY not in done.stdout + done.stderr
