"""The plan with the sandbox's capture agent and SYSCAT views, without rows filled in by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.memory_offsets import MemoryOffsets
from support.sandbox_source import JARS, CountingSource, address_of

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.source.planning.plan import TickRun, plan_tick
from airflow_provider_db2cdc.source.preflight.checks import preflight

pytestmark = pytest.mark.sandbox

CONFIG = PipelineConfig(pipeline="p", target="/lake/p", max_rows_per_batch=5)
ORDERS, ITEMS = TableId("SALES", "ORDERS"), TableId("SALES", "Order Items")
SCRIPT = (
    "CREATE SCHEMA SALES",
    "CREATE TABLE SALES.ORDERS (NOTE VARCHAR(20), ID INTEGER NOT NULL PRIMARY KEY, MARK CHAR(4) FOR BIT DATA, "
    "PRICE DECIMAL(12, 3), MADE TIMESTAMP, DOC CLOB, FLAG BOOLEAN)",
    'CREATE TABLE SALES."Order Items" ("b" INTEGER NOT NULL, "A" INTEGER NOT NULL, N INTEGER)',
    'CREATE UNIQUE INDEX SALES.WIDE ON SALES."Order Items" ("b", "A", N)',
    'CREATE UNIQUE INDEX SALES.BEST ON SALES."Order Items" ("A", "b")',
)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CountingSource, Any]]:
    """A source with two registered tables and an agent at work, and a connection that changes them."""
    with Sandbox.start(tmp_path_factory.mktemp("captured"), jars=JARS, commit_interval_s=0.2) as running:
        connection = running.connect()
        cursor = connection.cursor()
        for statement in SCRIPT:
            cursor.execute(statement)
        connection.commit()
        for table in (ORDERS, ITEMS):
            control_tables.addtable(connection, table.schema, table.name)
        with CountingSource(address_of(running)) as source:
            yield source, connection
        cursor.close()
        connection.close()


def change(connection: Any, *statements: str) -> None:
    """Run each statement as a transaction of its own, and wait until all are captured."""
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
        connection.commit()
    cursor.close()
    await_captured(connection)


def planned(source: CountingSource, offsets: MemoryOffsets, run: str, now_ms: int) -> JobSpec:
    spec = plan_tick(source, CONFIG, offsets, TickRun(run, now_ms))
    assert spec is not None
    return spec


def test_captured_changes_are_planned_from_the_snapshot_on(captured: tuple[CountingSource, Any]) -> None:
    source, connection = captured
    offsets = MemoryOffsets()
    change(connection, *(f"INSERT INTO SALES.ORDERS (ID, NOTE) VALUES ({number}, 'new')" for number in range(5)))

    begun = planned(source, offsets, "run-1", 1)
    assert {task.table: (task.stored_lsn, task.rows) for task in begun.tables} == {ORDERS: (None, 0), ITEMS: (None, 0)}
    offsets.put(*(Offset(task.table, task.upto, 1, committed_lsn=task.upto) for task in begun.tables))
    offsets.put_summary(PipelineSummary(tables=(ORDERS, ITEMS)))

    source.statements = 0
    assert plan_tick(source, CONFIG, offsets, TickRun("run-2", 2)) is None
    assert source.statements <= 8

    change(connection, "UPDATE SALES.ORDERS SET NOTE = 'old' WHERE ID < 2", "DELETE FROM SALES.ORDERS WHERE ID = 4")
    some = planned(source, offsets, "run-3", 3)
    assert {task.table: task.rows for task in some.tables} == {ORDERS: 5, ITEMS: 0}

    change(connection, "DELETE FROM SALES.ORDERS")
    limited = planned(source, offsets, "run-4", 4)
    assert {task.table: task.rows for task in limited.tables} == {ORDERS: 5, ITEMS: 0}
    assert len({task.upto for task in limited.tables}) == 1
    assert limited.tables[0].upto < limited.capture_position.lsn


def test_schemas_come_from_the_catalog(captured: tuple[CountingSource, Any]) -> None:
    source, _ = captured
    tasks = {task.table: task for task in planned(source, MemoryOffsets(), "run", 1).tables}
    orders, items = tasks[ORDERS].schema, tasks[ITEMS].schema
    assert orders.columns == (
        Column("NOTE", "VARCHAR", 20, 0, True, False),
        Column("ID", "INTEGER", 4, 0, False, False),
        Column("MARK", "CHARACTER", 4, 0, True, True),
        Column("PRICE", "DECIMAL", 12, 3, True, False),
        Column("MADE", "TIMESTAMP", 10, 6, True, False),
    )
    assert (orders.key, orders.uncaptured_columns) == (("ID",), ("DOC", "FLAG"))
    assert (items.names, items.key) == (("b", "A", "N"), ("A", "b"))


def test_preflight_only_warns(captured: tuple[CountingSource, Any]) -> None:
    source, connection = captured
    change(connection, 'INSERT INTO SALES."Order Items" VALUES (1, 1, 1)')
    failed = [check for check in preflight(source, CONFIG, MemoryOffsets().read()) if not check.ok]
    assert [(check.name, check.subject, check.level) for check in failed] == [("columns", str(ORDERS), "warning")]
