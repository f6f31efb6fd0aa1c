"""How many rows the sandbox's Derby reads for a statement, by its own statistics."""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection

VISITED = re.compile(r"Number of rows visited=(\d+)")


class VisitingConnection(DriverConnection):
    """A connection of the source by a DB-API cursor. `visited` counts the rows that its selects have read."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.visited = 0
        cursor.execute("CALL SYSCS_UTIL.SYSCS_SET_RUNTIMESTATISTICS(1)")

    def text_rows(self, select: str) -> list[list[str | None]]:
        self._cursor.execute(select)
        rows: list[list[str | None]] = [[*map(str, row)] for row in self._cursor.fetchall()]
        self._cursor.execute("VALUES SYSCS_UTIL.SYSCS_GET_RUNTIMESTATISTICS()")
        self.visited += sum(map(int, VISITED.findall(self._cursor.fetchall()[0][0])))
        return rows
