from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.memory_offsets import FileOffsets

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import Restart
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.offsets import file
from airflow_provider_db2cdc.offsets.file import offsets_path

T = TableId("S", "T")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


@pytest.fixture
def store(tmp_path: Path) -> FileOffsets:
    return FileOffsets(tmp_path / "_db2cdc" / "offsets.json")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    store = FileOffsets(tmp_path / "file" / "deep" / "offsets.json")
    attempts: list[Callable[[], object]] = [
        store.check_writable,
        lambda: store.put(Offset(T, lsn(5), 3)),
        lambda: store.request(T, Restart("r")),
        lambda: store.put_summary(PipelineSummary(handled_signal_ids=("1",))),
    ]
    for attempt in attempts:
        with pytest.raises(OffsetError, match=r"offsets\.json cannot be kept"):
            attempt()
    with pytest.raises(OffsetError, match=r"offsets.* cannot be read"):
        store.summary()


def test_a_full_disk_is_named_first(store: FileOffsets, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(Offset(T, lsn(5), 3))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OffsetError, match=r"the disk of .*offsets\.json is full.*Free space there"):
        store.put(Offset(T, lsn(6), 4))
    assert store.get(T) == Offset(T, lsn(5), 3)


def test_a_place_that_may_not_be_entered_is_named(store: FileOffsets, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user other than root meets this if a folder above is closed or another user owns the lock."""

    def closed(self: Path, **options: object) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", closed)
    monkeypatch.setattr(Path, "is_dir", closed)
    monkeypatch.setattr("os.access", lambda place, mode: False)
    with pytest.raises(OffsetError, match="not a folder that this user may write to"):
        store.check_writable()
    store.path.parent.mkdir()
    store.path.with_suffix(".lock").touch()
    monkeypatch.setattr("os.access", lambda place, mode: Path(place).suffix != ".lock")
    with pytest.raises(OffsetError, match=r"offsets\.lock is not a file that this user may write to"):
        store.check_writable()


def test_check_for_a_writable_place_leaves_no_file(store: FileOffsets, tmp_path: Path) -> None:
    store.check_writable()
    assert [*tmp_path.iterdir()] == []


def test_only_the_file_and_its_lock_remain(store: FileOffsets) -> None:
    store.put(Offset(T, lsn(5), 3))
    assert {path.name for path in store.path.parent.iterdir()} == {"offsets.json", "offsets.lock"}
    store.request(T, Restart("r"))
    store.put_summary(PipelineSummary(handled_signal_ids=("1",)))
    files = {path.name for path in store.path.parent.iterdir()}
    assert files == {"offsets.json", "offsets.requests.json", "offsets.summary.json", "offsets.lock"}
    assert json.loads(store.path.read_text())["tables"]["S.T"]["lsn"] == str(lsn(5))


def test_a_held_lock_ends_in_an_error(store: FileOffsets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "LOCK_TIMEOUT_S", 0.2)
    store.path.parent.mkdir()
    with store.path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OffsetError, match="locked"):
            store.put(Offset(T, lsn(5), 3))


def _put_tables(path: Path, start: int) -> None:
    for number in range(start, start + 10):
        FileOffsets(path).put(Offset(TableId("S", f"T{number}"), lsn(number + 1), 1))


def test_processes_do_not_lose_each_others_offsets(store: FileOffsets) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_put_tables, args=(store.path, start)) for start in (0, 10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(store.all()) == 20


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/lake/sales", "/lake/sales/_db2cdc/offsets.json"),
        ("file:/lake/sales", "/lake/sales/_db2cdc/offsets.json"),
        ("file:///lake/sales/", "/lake/sales/_db2cdc/offsets.json"),
    ],
)
def test_offsets_are_stored_next_to_a_local_target(target: str, path: str) -> None:
    assert offsets_path(target) == Path(path)


@pytest.mark.parametrize("target", ["s3a://lake/sales", "main.sales", "hdfs:/x"])
def test_offsets_of_another_target_need_a_configured_file(target: str) -> None:
    with pytest.raises(ConfigurationError, match=r"offsets\.file"):
        offsets_path(target)
    assert offsets_path(target, Path("/o.json")) == Path("/o.json")
