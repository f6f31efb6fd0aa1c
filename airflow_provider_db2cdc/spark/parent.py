"""End of the job with the process that started it, even if that process dies by SIGKILL."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path

from airflow_provider_db2cdc.cdc.document import PARENT_PIPE

ORPHANED = 1


def end_with_parent(folder: Path) -> None:
    """Watch the pipe in `folder`, if there is one. End this process at once when no process holds its writing end.

    spark-submit ends when its Python process does. The JVM between the two passes on neither signals nor open files, so
    this process cannot see the parent's end in another way.
    """
    pipe = folder / PARENT_PIPE
    if pipe.is_fifo():
        handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        threading.Thread(target=_watch, args=(handle,), name="parent", daemon=True).start()


def _watch(handle: int) -> None:
    try:
        # If the parent died before this process began, poll() would wait for ever: no writer is left to go.
        has_no_writer = os.read(handle, 1) == b""
    except BlockingIOError:
        has_no_writer = False
    if not has_no_writer:
        watched = select.poll()
        watched.register(handle, select.POLLHUP)
        watched.poll()
    # Write nothing: its reader is gone, and an error here would leave the job running.
    os._exit(ORPHANED)
