"""Conflicts of a write with another writer's commit, for example with an OPTIMIZE, and the repetition of the write."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from airflow_provider_db2cdc.tick.log import is_concurrent_write, log_progress

T = TypeVar("T")

NAMES = (
    "ConcurrentAppend", "ConcurrentDeleteRead", "ConcurrentDeleteDelete", "MetadataChanged", "ProtocolChanged",
    "DELTA_CONCURRENT_APPEND", "DELTA_CONCURRENT_DELETE_READ", "DELTA_CONCURRENT_DELETE_DELETE",
    "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED",
)  # fmt: skip
"""Delta's names of conflicts after which the write may simply be done again. In Spark 4.0 they come by Py4J."""

ATTEMPTS = 6
PAUSE_S = 0.5


def is_conflict(error: BaseException) -> bool:
    """Return whether Delta refused a write because of another writer's commit. The write has left nothing then.

    It is not a conflict that the other writer has committed the same transaction id: it was another run.
    """
    return not is_concurrent_write(error) and any(name in str(error) for name in NAMES)


def repeat_on_conflict(write: Callable[[], T], what: str, attempts: int = ATTEMPTS) -> T:
    """Do a write, and do it again after a conflict. `what` names the table.

    A write with a transaction id stays a single one: if a commit did take effect, Delta skips the repetition.

    :raises Exception: the error of the last attempt, or any other error than a conflict.
    """
    for attempt in range(1, attempts):
        try:
            return write()
        except Exception as error:
            if not is_conflict(error):
                raise
            log_progress(f"{what}: another writer has committed meanwhile, so this write is repeated ({attempt})")
            # A random pause, so that two writers do not meet again.
            time.sleep(random.uniform(0, PAUSE_S * attempt))
    return write()


def skip_on_conflict(write: Callable[[], object], what: str, attempts: int = 2) -> bool:
    """Do a write that may also be left out. Return False if each attempt met a conflict.

    :raises Exception: any other error than a conflict.
    """
    try:
        repeat_on_conflict(write, what, attempts)
    except Exception as error:
        if not is_conflict(error):
            raise
        log_progress(f"{what}: left out, because other writers commit to it meanwhile")
        return False
    return True
