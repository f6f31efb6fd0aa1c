"""What Airflow keeps in its PostgreSQL: runs, task instances, and how many rows each table has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg2

UNFINISHED = ("scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule", "restarting")


@dataclass(frozen=True)
class DagRunRow:
    """A run of a DAG. `start` and `end` are None until then."""

    dag: str
    run_id: str
    run_type: str
    state: str
    start: datetime | None
    end: datetime | None


@dataclass(frozen=True)
class TaskRow:
    """A task instance, or an earlier try of one."""

    dag: str
    run_id: str
    task: str
    state: str
    tries: int
    start: datetime | None = None


class Metadata:
    """Reads the database at SQLAlchemy's URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        self._place = {"host": query["host"][0], "port": query["port"][0], "user": parts.username, "dbname": "postgres"}

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    def end_idle_transactions_after(self, seconds: int) -> None:
        """Have PostgreSQL end a session of Airflow whose transaction is idle for longer.

        Workers of a scheduler whose first process was killed hold its connection, and so the locks of its transaction.
        """
        with self._cursor() as cursor:
            cursor.execute(f"ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = '{seconds}s'")

    def runs(self, dag: str) -> list[DagRunRow]:
        """Return the runs of a DAG, in the order in which they were made."""
        columns = "dag_id, run_id, run_type, state, start_date, end_date"
        return [
            DagRunRow(*row) for row in self.rows(f"SELECT {columns} FROM dag_run WHERE dag_id = %s ORDER BY id", dag)
        ]

    def tasks(self, states: Sequence[str], task: str = "%") -> list[TaskRow]:
        """Return the task instances in one of some states, whose names match."""
        columns = "dag_id, run_id, task_id, state, try_number, start_date"
        where = "state = ANY(%s) AND task_id LIKE %s"
        return [
            TaskRow(*row) for row in self.rows(f"SELECT {columns} FROM task_instance WHERE {where}", [*states], task)
        ]

    def unfinished(self) -> list[TaskRow]:
        """Return the task instances that wait or run."""
        return self.tasks(UNFINISHED)

    def earlier_tries(self) -> list[TaskRow]:
        """Return each try after which there was another one."""
        columns = "dag_id, run_id, task_id, state, try_number"
        return [TaskRow(*row) for row in self.rows(f"SELECT {columns} FROM task_instance_history ORDER BY start_date")]

    def xcoms(self, dag: str) -> list[tuple[str, str, int, int]]:
        """Return task, key, number and greatest number of characters of the XComs of a DAG."""
        columns = "task_id, key, COUNT(*), MAX(LENGTH(value::text))"
        found = self.rows(f"SELECT {columns} FROM xcom WHERE dag_id = %s GROUP BY task_id, key ORDER BY 4 DESC", dag)
        return [(str(task), str(key), int(count), int(most)) for task, key, count, most in found]

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with closing(psycopg2.connect(**self._place)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                yield cursor
