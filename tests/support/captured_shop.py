"""Two tables in the sandbox that its agent captures."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture import control_tables, faults
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured
from airflow_provider_db2cdc.sandbox.server.service import Sandbox


class Captured:
    """The sandbox's own tables, captured, and what happens to them."""

    schema = "SHOP"

    def __init__(self, sandbox: Sandbox) -> None:
        self.password = sandbox.password
        self._connection = sandbox.connect()
        self._cursor = self._connection.cursor()
        self._cursor.execute(f"CREATE SCHEMA {self.schema}")
        for name in ("ORDERS", "ITEMS"):
            self._cursor.execute(f"CREATE TABLE {self.schema}.{name} (ID INTEGER NOT NULL PRIMARY KEY)")
            self._connection.commit()
            control_tables.addtable(self._connection, self.schema, name)
        self.synchpoint()

    def table(self, name: str) -> TableId:
        """Name one of the tables, ORDERS or ITEMS."""
        return TableId(self.schema, name)

    def insert(self, table: TableId) -> None:
        """Insert a row, and wait until it is captured."""
        self._cursor.execute(f"INSERT INTO {table} SELECT COALESCE(MAX(ID), 0) + 1 FROM {table}")
        self.synchpoint()

    def set_state(self, table: TableId, state: str) -> None:
        """Set the STATE of a table's registration."""
        faults.set_state(self._connection, table.schema, table.name, state)

    def synchpoint(self) -> Lsn:
        """Return a position after everything so far, once capture has reached it."""
        return Lsn(await_captured(self._connection))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
