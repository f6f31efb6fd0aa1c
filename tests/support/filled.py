"""A captured table with rows in it, and transactions that capture has passed."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from support.pipeline import Pipeline


def filled(pipeline: Pipeline, rows: int, name: str = "T", **registration: Any) -> TableId:
    """Create a table with the columns ID and A and the rows (0, 'a'), (1, 'a') ..., and capture it."""
    ddl = f"CREATE TABLE {pipeline.schema}.{name} (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))"
    table = pipeline.create(ddl, name, **registration)
    pipeline.many(f"INSERT INTO {table} VALUES (?, 'a')", [(at,) for at in range(rows)])
    pipeline.captured()
    return table


def one_update(pipeline: Pipeline, **registration: Any) -> tuple[TableId, JobSpec]:
    """Return a table of nine rows that the target holds, and the plan for an update of one row."""
    table = filled(pipeline, 9, **registration)
    pipeline.passed()
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    spec = pipeline.plan()
    assert spec is not None
    return table, spec


def ask(table: TableId, id_: str = "ask", **data: Any) -> Signal:
    """Return a request for an incremental snapshot of a table, unless `data` says otherwise."""
    return Signal(id_, "execute-snapshot", json.dumps({"data-collections": [str(table)], **data}), "airflow")


def changed(pipeline: Pipeline, *statements: str) -> Lsn:
    """Commit statements as one transaction, and return the capture position once it has passed that."""
    for statement in statements:
        pipeline.execute(statement)
    pipeline.writer.commit()
    return pipeline.captured()
