"""Scheduled and backfill runs for tests: `dag.test` only creates manual ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import event

Interval = tuple[datetime, datetime]


@contextmanager
def scheduled(interval: Interval | None, run_type: str = "scheduled") -> Iterator[None]:
    """Have runs that the block creates be of this type, with this data interval. None changes nothing."""
    from airflow.models import DagRun
    from airflow.utils.types import DagRunType

    def schedule(mapper: Any, connection: Any, run: Any) -> None:
        if interval is not None:
            run.run_type = DagRunType(run_type)
            run.data_interval_start, run.data_interval_end = interval

    event.listen(DagRun, "before_insert", schedule)
    try:
        yield
    finally:
        event.remove(DagRun, "before_insert", schedule)
