"""Offsets in a file next to the target. The command line uses this store, and DAGs use Airflow Variables."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.offset.offset import Offset, check_forward
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.failpoint import failpoint

LOCK_TIMEOUT_S = 10.0
LOCK_POLL_S = 0.05


def offsets_path(target: str, chosen: Path | None = None) -> Path:
    """Return the path of the offsets' file: `chosen`, or `_db2cdc/offsets.json` in a target that is a local path.

    :raises ConfigurationError: when the target is not a local path and no file is chosen.
    """
    if chosen is not None:
        return chosen
    folder = local_folder(target)
    if folder is None:
        raise ConfigurationError(f"target {target!r} is not a local folder to keep offsets in", "Set offsets.file.")
    return folder / "_db2cdc" / "offsets.json"


def local_folder(target: str) -> Path | None:
    """Return the local folder of a target, or None if it is remote or in a catalog."""
    local = target.removeprefix("file:")
    if not Layout(target).is_path or ":" in local:
        return None
    return Path("/" + local.lstrip("/") if local != target else local)


class FileOffsetStore:
    """The offsets of one pipeline in one JSON file, which each change replaces as a whole.

    A lock file next to it makes two processes take turns. After a crash the file has either the old or the new text.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def where(self) -> str:
        """The name of the store in messages: the file's path."""
        return str(self.path)

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset, or None if there is none.

        :raises OffsetError: when the file is damaged, or cannot be read.
        """
        return self.all().get(table)

    def all(self) -> Mapping[TableId, Offset]:
        """Return the offsets of all tables.

        :raises OffsetError: when the file is damaged, or cannot be read.
        """
        where = self.where
        try:
            documents = json.loads(self.path.read_text(encoding="utf-8"))["offsets"]
            offsets = [Offset.from_json(json.dumps(document), where) for document in documents]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OffsetError(
                f"the offsets in {where} cannot be read ({type(error).__name__})",
                "Repair the file, or remove it and restore each offset with `db2cdc offset restore`.",
            ) from error
        return {offset.table: offset for offset in offsets}

    @failpoint("put_offset")
    def put(self, offset: Offset) -> None:
        """Store `offset`.

        :raises OffsetError: when it would replace a newer one, or the file cannot be written.
        """
        with self._locked():
            kept = dict(self.all())
            check_forward(kept.get(offset.table), offset)
            self._write({**kept, offset.table: offset})

    def reset(self, offset: Offset) -> None:
        """Store `offset` even if it moves back. This is a repair that an operator asks for."""
        with self._locked():
            self._write({**self.all(), offset.table: offset})

    def remove(self, table: TableId) -> Offset | None:
        """Remove a table's offset and return it, or None if there was none."""
        with self._locked():
            kept = dict(self.all())
            old = kept.pop(table, None)
            self._write(kept)
            return old

    def summary(self) -> PipelineSummary:
        """Return the summary, which is empty if none is stored.

        :raises OffsetError: when the file is damaged, or cannot be read.
        """
        try:
            text = self._summary_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return PipelineSummary()
        except (OSError, ValueError) as error:
            raise OffsetError(
                f"the summary in {self._summary_path} cannot be read ({type(error).__name__})",
                "Let the user of `db2cdc` read it, or repair it.",
            ) from error
        return PipelineSummary.from_json(text, str(self._summary_path))

    @failpoint("put_summary")
    def put_summary(self, summary: PipelineSummary) -> None:
        """Store the summary in a file next to the offsets."""
        with self._locked():
            self._replace(self._summary_path, to_data(summary))

    @property
    def _summary_path(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.summary.json")

    def check_writable(self) -> None:
        """Check that the offsets can be stored, without writing anything.

        :raises OffsetError: when this user may not write there.
        """
        # Path.exists raises if this user may not enter a parent folder. os.path.exists does not.
        folder = next(parent for parent in self.path.absolute().parents if os.path.exists(parent))
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
            raise self._unwritable(f"{folder} is not a folder that this user may write to")
        if os.path.exists(self._lock_path) and not os.access(self._lock_path, os.W_OK):
            raise self._unwritable(f"{self._lock_path} is not a file that this user may write to")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock_path.open("a") as lock:
                deadline = time.monotonic() + LOCK_TIMEOUT_S
                while not _try_lock(lock.fileno()):
                    if time.monotonic() > deadline:
                        raise OffsetError(f"{self.path} is locked by another process", "Let that one finish.")
                    time.sleep(LOCK_POLL_S)
                yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OffsetError(
                    f"the disk of {self.path} is full, so the offsets cannot be kept ({error.strerror})",
                    "Free space there, then run the tick again: it moves them to what the target holds.",
                ) from error
            raise self._unwritable(f"{error.strerror}: {error.filename}") from error

    @property
    def _lock_path(self) -> Path:
        return self.path.with_suffix(".lock")

    def _unwritable(self, reason: str) -> OffsetError:
        return OffsetError(
            f"the offsets in {self.path} cannot be kept ({reason})",
            "Let the user of `db2cdc` write to its folder, or name another file with offsets.file.",
        )

    def _write(self, offsets: Mapping[TableId, Offset]) -> None:
        self._replace(self.path, {"offsets": [to_data(offsets[table]) for table in sorted(offsets)]})

    def _replace(self, path: Path, document: object) -> None:
        handle, partial = tempfile.mkstemp(dir=self.path.parent, prefix=".offsets-", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            Path(partial).unlink(missing_ok=True)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
