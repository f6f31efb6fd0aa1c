"""The tables of several pipelines, and a writer that changes all of them until it is stopped."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

DDL = "ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(40) NOT NULL, AMOUNT DECIMAL(11, 2), CHANGED_AT TIMESTAMP NOT NULL"
ROWS = 200
NAMES = ("Ada", "Grace O'Hara", "Zoë", "Łukasz", "Ana  María ", "渡辺", "")
START = datetime(2026, 1, 1)
RECONNECT_S, JOIN_TIMEOUT_S = 1.0, 60.0


def build(sandbox: Sandbox, schemas: Sequence[str], tables: int) -> list[TableId]:
    """Create so many filled tables in each schema, and register them for capture."""
    built = [TableId(schema, f"T{number:02}") for schema in schemas for number in range(tables)]
    rng = random.Random(1)
    with closing(sandbox.connect()) as connection:
        for schema in schemas:
            execute(connection, f"CREATE SCHEMA {schema}")
        for table in built:
            execute(connection, f"CREATE TABLE {table} ({DDL})")
            _insert(connection, table, [_row(rng, key) for key in range(ROWS)])
            connection.commit()
            control_tables.addtable(connection, table.schema, table.name)
    return built


class TableWriter:
    """Changes some rows of some tables `rate` times a second, from `start` to `stop`.

    `counts` has the committed changes of each table by the op of their events. `lost` counts transactions that ended
    with an error. Such a transaction may have been committed, so `counts` is exact only if none was lost.
    """

    def __init__(self, sandbox: Sandbox, tables: Sequence[TableId], rate: float) -> None:
        self._sandbox, self._tables, self._rate = sandbox, list(tables), rate
        self._rng = random.Random(2)
        self._keys = {table: list(range(ROWS)) for table in tables}
        self._next = dict.fromkeys(tables, ROWS)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.counts: dict[TableId, Counter[str]] = {table: Counter() for table in tables}
        self.lost = 0

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the running transaction, and stop. A second call does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT_S)

    @property
    def changes(self) -> int:
        """The number of committed changes."""
        return sum(sum(counts.values()) for counts in self.counts.values())

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with closing(self._sandbox.connect()) as connection:
                    while not self._stop.wait(self._rng.expovariate(self._rate)):
                        self._transact(connection)
            except Exception:  # ibm_db raises Exception itself for a lost connection
                self.lost += 1
                self._stop.wait(RECONNECT_S)

    def _transact(self, connection: Connection) -> None:
        done: dict[TableId, Counter[str]] = {}
        keys: dict[TableId, list[int]] = {}
        for table in self._rng.sample(self._tables, min(3, len(self._tables))):
            keys[table] = list(self._keys[table])
            done[table] = Counter(self._change(connection, table, keys[table]) for _ in range(self._rng.randint(1, 5)))
        connection.commit()
        self._keys |= keys
        for table, counts in done.items():
            self.counts[table] += counts

    def _change(self, connection: Connection, table: TableId, keys: list[int]) -> str:
        """Change one row, and return the op of its event."""
        kind = self._rng.choices(("u", "c", "d"), (5, 3, 2))[0]
        if kind == "c":
            key = self._next[table]
            self._next[table] += 1
            _insert(connection, table, [_row(self._rng, key)])
            keys.append(key)
            return kind
        key = self._rng.choice(keys)
        if kind == "d":
            execute(connection, f"DELETE FROM {table} WHERE ID = ?", key)
            keys.remove(key)
            return kind
        change = f"UPDATE {table} SET NAME = ?, AMOUNT = ?, CHANGED_AT = ? WHERE ID = ?"
        execute(connection, change, *_row(self._rng, key)[1:], key)
        return kind


def _row(rng: random.Random, key: int) -> tuple[object, ...]:
    amount = None if rng.random() < 0.2 else Decimal(rng.randint(-10_000, 10_000_000)) / 100
    return key, rng.choice(NAMES), amount, START + timedelta(microseconds=rng.randrange(10**13))


def _insert(connection: Connection, table: TableId, rows: Sequence[tuple[object, ...]]) -> None:
    cursor = connection.cursor()
    try:
        cursor.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", tuple(rows))
    finally:
        cursor.close()
