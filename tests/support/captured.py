"""A sandbox's source tables under capture, as the tests of this folder see them."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.agent import CaptureAgent, CaptureOptions
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute, fetch, quoted
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import find_journal
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Change:
    """A row of a change table."""

    commit: bytes
    intent: bytes
    operation: str
    row: tuple[Any, ...]


class Source:
    """One connection to a sandbox and an agent that captures when a test asks it to."""

    def __init__(self, sandbox: Sandbox, **options: Any) -> None:
        self.sandbox = sandbox
        self.agent = CaptureAgent(sandbox.dsn(), CaptureOptions(**options))
        self.agent.install()
        self.connection: Connection = sandbox.connect()
        self._tables: list[tuple[str, str]] = []

    def table(self, definition: str = "ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(20)", **registration: Any) -> Table:
        """Create a table under a name of its own and register it."""
        name = (f"S{next(_numbers)}", "T")
        execute(self.connection, f"CREATE SCHEMA {quoted(name[0])}")
        execute(self.connection, f"CREATE TABLE {quoted(*name)} ({definition})")
        return self.register(name, **registration)

    def register(self, name: tuple[str, str], **registration: Any) -> Table:
        """Register a table that exists."""
        self.connection.commit()
        control_tables.addtable(self.connection, *name, control_tables.RegistrationOptions(**registration))
        self._tables.append(name)
        return Table(self, name)

    def run(self, sql: str, *parameters: object) -> int:
        """Run a statement, without a commit."""
        return execute(self.connection, sql, *parameters)

    def commit(self) -> None:
        """Commit."""
        self.connection.commit()

    def fetch(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return a committed reader's rows."""
        rows = fetch(self.connection, sql, *parameters)
        self.connection.commit()
        return rows

    def registration(self, name: tuple[str, str], columns: str) -> tuple[Any, ...]:
        """Return columns of a table's row in IBMSNAP_REGISTER."""
        return self.fetch(
            f"SELECT {columns} FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?", *name
        )[0]

    def synchpoint(self) -> tuple[bytes, Any]:
        """Return the global row's SYNCHPOINT and SYNCHTIME."""
        rows = self.fetch("SELECT SYNCHPOINT, SYNCHTIME FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'")
        return bytes(rows[0][0]), rows[0][1]

    def close(self) -> None:
        """Take its tables out of capture, so that the next test's agent has no work with them."""
        self.connection.rollback()
        for name in self._tables:
            if find_journal(self.connection, *name):
                control_tables.removetable(self.connection, *name)
        self.agent.close()
        self.connection.close()


@dataclass(frozen=True)
class Table:
    """A captured table."""

    source: Source
    name: tuple[str, str]

    def __str__(self) -> str:
        return quoted(*self.name)

    @property
    def change_table(self) -> str:
        """The change table's quoted name, from the registration."""
        owner, table = self.source.registration(self.name, "CD_OWNER, CD_TABLE")
        return quoted(owner, table)

    def changes(self) -> list[Change]:
        """Return what was captured, in log order."""
        rows = self.source.fetch(f"SELECT * FROM {self.change_table} ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ")
        return [Change(bytes(row[0]), bytes(row[1]), row[2], tuple(row[3:])) for row in rows]

    def captured(self) -> list[tuple[Any, ...]]:
        """Let the agent run a round; return operation and values of all that was captured."""
        self.source.agent.round()
        return [(change.operation, *change.row) for change in self.changes()]

    def rows(self) -> Counter[tuple[Any, ...]]:
        """Return the table's rows."""
        return Counter(self.source.fetch(f"SELECT * FROM {self}"))


def replay(changes: Sequence[Change]) -> Counter[tuple[Any, ...]]:
    """Return the rows that the changes leave: each D takes a row with its image away, each I adds one."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        rows[change.row] += 1 if change.operation == "I" else -1
        if not rows[change.row]:
            del rows[change.row]
    return rows


@contextmanager
def running(sandbox: Sandbox) -> Iterator[CaptureAgent]:
    """Let an agent capture in a thread, without a pause to speak of."""
    agent = CaptureAgent(sandbox.dsn(), CaptureOptions(commit_interval_s=0.02))
    stop = threading.Event()
    thread = threading.Thread(target=agent.run_forever, args=(stop,), daemon=True)
    thread.start()
    try:
        yield agent
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


@contextmanager
def opened(sandbox: Sandbox, **options: Any) -> Iterator[Source]:
    """Yield a source of the sandbox."""
    source = Source(sandbox, **options)
    try:
        yield source
    finally:
        source.close()
