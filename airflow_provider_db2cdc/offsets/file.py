"""Offsets in files next to the target. The command line uses this store, and DAGs use Airflow Variables."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.offsets.keyed import Document, KeyedOffsetStore

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


class FileOffsetStore(KeyedOffsetStore):
    """The offsets of one pipeline in files: `offsets.json`, `offsets.requests.json` and `offsets.summary.json`."""

    def __init__(self, path: Path) -> None:
        super().__init__(FileTexts(path))
        self.path = path

    def check_writable(self) -> None:
        """Check that the offsets can be stored, without writing anything.

        :raises OffsetError: when this user may not write there.
        """
        # Path.exists raises if this user may not enter a parent folder. os.path.exists does not.
        folder = next(parent for parent in self.path.absolute().parents if os.path.exists(parent))
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
            raise _unwritable(self.path, f"{folder} is not a folder that this user may write to")
        lock = lock_path(self.path)
        if os.path.exists(lock) and not os.access(lock, os.W_OK):
            raise _unwritable(self.path, f"{lock} is not a file that this user may write to")


class FileTexts:
    """Documents in JSON files side by side, each of which is replaced as a whole.

    A lock file next to them makes two processes take turns. After a crash a file has either the old or the new text.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def where(self) -> str:
        """The name of the store in messages: the path of the offsets' file."""
        return str(self.path)

    def name(self, document: Document) -> str:
        """Return the path of a document."""
        return str(self._path(document))

    def get(self, document: Document) -> str | None:
        """Return a document's text, or None if its file does not exist.

        :raises OffsetError: when the file cannot be read.
        """
        path = self._path(document)
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            return ""
        except OSError as error:
            raise OffsetError(
                f"{path} cannot be read ({type(error).__name__})", "Let the user of `db2cdc` read it."
            ) from error

    def put(self, document: Document, text: str) -> None:
        """Replace a document's file."""
        handle, partial = tempfile.mkstemp(dir=self.path.parent, prefix=".offsets-", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self._path(document))
        finally:
            Path(partial).unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock.

        :raises OffsetError: when another process holds it for long, or the files cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with lock_path(self.path).open("a") as lock:
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
            raise _unwritable(self.path, f"{error.strerror}: {error.filename}") from error

    def _path(self, document: Document) -> Path:
        return self.path if document == "offsets" else self.path.with_name(f"{self.path.stem}.{document}.json")


def lock_path(path: Path) -> Path:
    """Return the path of the lock file."""
    return path.with_suffix(".lock")


def _unwritable(path: Path, reason: str) -> OffsetError:
    return OffsetError(
        f"the offsets in {path} cannot be kept ({reason})",
        "Let the user of `db2cdc` write to its folder, or name another file with offsets.file.",
    )


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
