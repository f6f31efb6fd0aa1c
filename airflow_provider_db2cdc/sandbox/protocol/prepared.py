"""A connection that keeps its statements prepared: a round is a few dozen statements, the same ones each time."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import ibm_db

from airflow_provider_db2cdc.source import driver

_MOST_STATEMENTS = 300


class PreparedConnection:
    """An ibm_db connection, autocommit off, as far as `statement` needs one.

    Derby's own statement cache is not enough, because writers with literals in their SQL push everything else out.
    Statements are not shared with other connections either: each text ends with a comment that is unique to the
    connection. Derby compiles a shared statement again while others run it. It has then kept a plan with too few
    columns.
    """

    def __init__(self, dsn: str) -> None:
        self._handle = driver.open_handle(dsn, {ibm_db.SQL_ATTR_AUTOCOMMIT: ibm_db.SQL_AUTOCOMMIT_OFF})
        self._statements: dict[str, Any] = {}
        self._own = f" /* {uuid4().hex} */"

    def cursor(self) -> _Cursor:
        """Return a new cursor. Only one at a time may be in use for one text of SQL."""
        return _Cursor(self)

    def commit(self) -> None:
        """Commit."""
        ibm_db.commit(self._handle)

    def rollback(self) -> None:
        """Roll back."""
        ibm_db.rollback(self._handle)

    def close(self) -> None:
        """Close the connection, its statements first."""
        self._free()
        ibm_db.close(self._handle)

    def prepared(self, sql: str) -> Any:
        """Return the statement of this text, prepared now or earlier."""
        if sql not in self._statements:
            if len(self._statements) >= _MOST_STATEMENTS:
                self._free()
            self._statements[sql] = ibm_db.prepare(self._handle, driver.padded(sql + self._own))
        return self._statements[sql]

    def _free(self) -> None:
        for statement in self._statements.values():
            ibm_db.free_stmt(statement)
        self._statements.clear()


class _Cursor:
    """What `statement` needs of a DB-API cursor."""

    def __init__(self, connection: PreparedConnection) -> None:
        self._connection = connection
        self._statement: Any = None

    @property
    def rowcount(self) -> int:
        return int(ibm_db.num_rows(self._statement))

    def execute(self, sql: str, parameters: tuple[object, ...] | None = None) -> None:
        self._statement = self._connection.prepared(sql)
        ibm_db.execute(self._statement, *([parameters] if parameters else []))

    def fetchall(self) -> list[tuple[Any, ...]]:
        # Before 3.3 the driver returns None instead of no rows.
        return list(ibm_db.fetchall(self._statement) or ())

    def close(self) -> None:
        if self._statement is not None:
            ibm_db.free_result(self._statement)
