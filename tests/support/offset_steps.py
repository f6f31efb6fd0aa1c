"""Steps of tests of stores of offsets: commits of a result, requests, and looks at the documents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import (
    Request,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.offsets.commit import OffsetCommitError, commit_tick
from airflow_provider_db2cdc.offsets.keyed import Document, KeyedOffsetStore

A, B, C = (TableId("S", name) for name in "ABC")
NAMES = [
    A,
    TableId("S", "a"),
    TableId("S.A", "X"),
    TableId("S", "A.X"),
    TableId("S", 'A"X'),
    TableId("S", "A X"),
    TableId("S", "A#X"),
    TableId("S", "Ä"),
    TableId("S" * 128, "T" * 128),
]


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def line(table: TableId, at: int, revision: str = "", **values: object) -> TableResult:
    return TableResult(table, "applied", lsn(at), at, revision=revision, **values)  # type: ignore[arg-type]


def result(*lines: TableResult, at_ms: int = 1) -> JobResult:
    return JobResult("p", f"run-{at_ms}", lines, planned_at_ms=at_ms)


def commit(store: KeyedOffsetStore, *lines: TableResult, at_ms: int = 1) -> OffsetCommitError | None:
    return commit_tick(result(*lines, at_ms=at_ms), store)[1]


def request(store: KeyedOffsetStore, table: TableId, asked: Request) -> None:
    store.put_requests(lambda seen: seen.requests.updated({table: replace(seen.pending(table), request=asked)}))


def offset_of(store: KeyedOffsetStore, table: TableId = A) -> Offset:
    offset = store.read().get(table)
    assert offset is not None
    return offset


def revision_of(store: KeyedOffsetStore, table: TableId = A) -> str:
    """Return the revision that a plan now sees."""
    return offset_of(store, table).revision


def texts(store: KeyedOffsetStore, *documents: Document) -> list[str | None]:
    return [store.texts.get(document) for document in documents]


def during(point: Failpoint, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Return a context in which something happens right before a document is written for the first time."""
    left = [act]

    def act_once(_: ReachedFailpoint) -> None:
        if left:
            left.pop()()

    return failpoint_action(point, before=act_once)


def fail(reached: ReachedFailpoint) -> None:
    raise AssertionError(f"nothing may be written: {reached.point}")
