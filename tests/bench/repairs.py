"""The case of repairs: a backfill of an interval of a large table."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from rich.console import Console
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, RepairOrder
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.delta.table_io import sql_name
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.session import TableSessions
from airflow_provider_db2cdc.sql.changes import change_rows

from .bare import bare_merge, reduced_rows
from .measured import Measured, note, planned, run, timed
from .stage import Stage

WRONG = 100


def backfill(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure a backfill that finds 100 wrong rows against one bare read of its change rows, and a merge of them."""
    pipeline = stage.pipeline()
    table = stage.big_table(pipeline, options.rows)
    pipeline.captured()
    pipeline.commit(run(planned(pipeline)))
    copy = str(stage.folder / "backfilled")
    pipeline.state(table).write.format("delta").option("delta.enableDeletionVectors", "true").save(copy)
    stage.change(pipeline, options.changes, options.rows, 0)
    pipeline.captured()
    spec = planned(pipeline)
    pipeline.commit(run(spec))
    reduced = reduced_rows(stage, pipeline, table, copy, 0)
    measured = Measured(goal=0.6, more={"rows": options.rows, "changes": options.changes, "wrong rows": WRONG})
    for number in range(options.rounds + 1):
        _damage(pipeline, table, number)
        limit = timed(partial(_bare_read, stage, spec)) + timed(partial(bare_merge, stage, copy, reduced))
        ours = timed(partial(_backfill, spec, number))
        note(measured, number, ours, limit, console)
    return measured


def _damage(pipeline: Pipeline, table: TableId, number: int) -> None:
    """Make rows wrong that the interval has changed, as a fault of the pipeline would."""
    layout = Layout(pipeline.target)
    owner = BatchLog(pipeline.spark, layout, "test").prepare()
    session = TableSessions(pipeline.spark, owner.mark).session(table, 0)
    state = sql_name(layout.state(table))
    session.sql(
        f"UPDATE {state} SET C4 = -1 WHERE C1 = 'u0' AND ID >= {number * WRONG} AND ID < {(number + 1) * WRONG}"
    )


def _backfill(spec: JobSpec, number: int) -> None:
    task = spec.tables[0]
    work = Backfill(0, spec.planned_at_ms, task.stored_lsn, task.upto)
    name = f"backfill{number}"
    [line] = run(replace(spec, repair=RepairOrder(work), signals=(), run_id=name, plan_id=name)).tables
    assert line.repair is not None
    assert (line.repair.rows_corrected, line.repair.events_added) == (WRONG, 0), line.repair


def _bare_read(stage: Stage, spec: JobSpec) -> None:
    source, task = JdbcSource(spec.source), spec.tables[0]
    assert task.stored_lsn is not None
    select = change_rows(task.schema, task.capture, LsnRange(task.stored_lsn, task.upto))
    source.frame(stage.bare, select).write.format("noop").mode("overwrite").save()
