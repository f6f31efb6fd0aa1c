"""The comparison of every row of every table: the source by ibm_db, the target by a separate Spark."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.demo.comparison.rows import Key, by_key, differing, portable
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome
from airflow_provider_db2cdc.demo.shop import KEYS
from airflow_provider_db2cdc.errors import TickFailedError
from airflow_provider_db2cdc.sandbox.capture.control_tables import CAPTURE_SCHEMA
from airflow_provider_db2cdc.sandbox.capture.statement import Connection
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.sandbox.server.state import DRIVER_OPTIONS
from airflow_provider_db2cdc.source import driver
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.source.catalog import read_capture
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql.asn import count_changes
from airflow_provider_db2cdc.submit.child import run_child
from airflow_provider_db2cdc.submit.command import Submission, submit_argv
from airflow_provider_db2cdc.submit.home import spark_binary, spark_environment

KEPT_LINES = 20


@dataclass(frozen=True)
class Comparison:
    """One table on both sides.

    `events` counts the change log by op. `differing` names the keys whose rows are not the same. `waiting` is the
    number of change rows between the offset and the capture position.
    """

    table: TableId
    source_rows: int
    target_rows: int
    differing: tuple[Key, ...]
    events: Mapping[str, int]
    version: int
    offset: Offset | None
    capture_lsn: Lsn
    waiting: int | None

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows in every column."""
        return not self.differing and self.source_rows == self.target_rows


@dataclass(frozen=True)
class Position:
    """The capture position, and the number of change rows between each table's offset and it."""

    capture_lsn: Lsn
    waiting: Mapping[TableId, int]


def compare(
    connection: Connection, target: Mapping[str, Any], offsets: Sequence[Offset], position: Position
) -> list[Comparison]:
    """Return the comparison of each table of the shop. `target` is the result of `read_target`."""
    stored = {offset.table: offset for offset in offsets}
    return [_compared(connection, table, target[str(table)], stored.get(table), position) for table in KEYS]


def read_target(home: AirflowHome) -> dict[str, Any]:
    """Return rows, change counts and version of each Delta table of the shop. See `read_tables`."""
    return read_tables(home, dict.fromkeys(KEYS, Layout(str(home.lake))))


def read_tables(home: AirflowHome, layouts: Mapping[TableId, Layout]) -> dict[str, Any]:
    """Return rows, change counts and version of Delta tables, as a small Spark job reads them.

    Raises:
        TickFailedError: the job failed. The error has its last lines.
    """
    into = home.folder / "target.json"
    tables = {
        str(table): {"state": layout.state(table).name, "changes": layout.changes(table).name}
        for table, layout in layouts.items()
    }
    request = home.folder / "compare.json"
    request.write_text(json.dumps({"tables": tables, "into": str(into)}), encoding="utf-8")
    said: deque[str] = deque(maxlen=KEPT_LINES)
    script = Path(__file__).with_name("delta.py")
    submission = Submission(str(script), (str(request),), (), home.spark_settings(), "local[2]", name="compare")
    env = spark_environment(environ=home.environment())
    code = run_child(submit_argv(spark_binary(), submission), env, said.append)
    if code or not into.is_file():
        raise TickFailedError(f"Spark could not read the target (exit code {code})", "\n".join(said))
    contents: dict[str, Any] = json.loads(into.read_text(encoding="utf-8"))
    return contents


def read_position(sandbox: Sandbox, offsets: Sequence[Offset]) -> Position:
    """Return the capture position and the number of change rows after the offsets."""
    address = Db2Address(
        sandbox.state.host, sandbox.database, sandbox.user, sandbox.password, sandbox.port, options=DRIVER_OPTIONS
    )
    with Source(address) as source:
        captured = read_capture(source, CAPTURE_SCHEMA)
        known = [offset for offset in offsets if offset.table in captured.registrations]
        steps = [
            (captured.registrations[offset.table], LsnRange(offset.lsn, captured.position.lsn)) for offset in known
        ]
        counts = dict(source.rows(count_changes(steps))) if steps else {}
    return Position(
        captured.position.lsn, {offset.table: int(counts.get(place, 0)) for place, offset in enumerate(known)}
    )


def source_table(connection: Connection, table: TableId) -> tuple[list[str], list[list[str | None]]]:
    """Return a table's columns and rows as ibm_db reads them."""
    cursor = connection.cursor()
    try:
        driver.execute(cursor, f"SELECT * FROM {table}")
        columns = [column[0] for column in cursor.description]
        rows = [[portable(value) for value in row] for row in cursor.fetchall()]
    finally:
        cursor.close()
    connection.commit()
    return columns, rows


def _compared(
    connection: Connection, table: TableId, target: Mapping[str, Any], offset: Offset | None, position: Position
) -> Comparison:
    columns, rows = source_table(connection, table)
    key = KEYS[table]
    source_side = by_key(columns, rows, key)
    order = [target["columns"].index(name) for name in columns]
    target_side = by_key(columns, ([row[at] for at in order] for row in target["rows"]), key)
    return Comparison(
        table=table,
        source_rows=len(rows),
        target_rows=len(target["rows"]),
        differing=tuple(differing(source_side, target_side)),
        events=target["events"],
        version=target["version"],
        offset=offset,
        capture_lsn=position.capture_lsn,
        waiting=position.waiting.get(table),
    )
