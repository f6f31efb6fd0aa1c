"""The job ends when the process that started it does, even by SIGKILL."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path

from airflow_provider_db2cdc.cdc.job import PARENT_PIPE

ORPHANED = 1


def end_with_parent(folder: Path) -> None:
    """Watch the pipe in `folder`, if there is one; end this process at once when nobody holds its writing end.

    spark-submit ends when its Python does. Between the two is a JVM that hands on neither signals nor open files.
    """
    pipe = folder / PARENT_PIPE
    if pipe.is_fifo():
        handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        threading.Thread(target=_watch, args=(handle,), name="parent", daemon=True).start()


def _watch(handle: int) -> None:
    try:
        # Where the parent died before this process began, poll() would wait for ever: there was no writer to lose.
        is_alone = os.read(handle, 1) == b""
    except BlockingIOError:
        is_alone = False
    if not is_alone:
        watched = select.poll()
        watched.register(handle, select.POLLHUP)
        watched.poll()
    # Nothing is written: who would read it is gone, and an error here would leave the job running.
    os._exit(ORPHANED)
