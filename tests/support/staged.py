"""What the snapshot model keeps: rows of its state and of its change log, and groups that wait for capture."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.event import Event
from airflow_provider_db2cdc.cdc.lsn import Lsn


@dataclass(frozen=True)
class Stand:
    """What the state shows of a row: the commit, and the batch that wrote it."""

    commit: Lsn
    batch: int


@dataclass(frozen=True)
class Entry:
    """One row of the change log, in the order of appending."""

    batch: int
    commit: Lsn
    kind: str
    event: Event | None
    key: Hashable
    image: Hashable | None


@dataclass(frozen=True)
class Group:
    """A group that is staged and waits for capture: positions are indexes of the history's commits."""

    chunk: int
    low: int
    low_batch: int
    begin: int
    token: int
    fence: int
    rows: tuple[tuple[Hashable, Hashable], ...]
