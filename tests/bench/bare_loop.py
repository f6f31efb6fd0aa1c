"""The bare work of a tick of many tables, for spark-submit: for each table one JDBC read, one append, and one MERGE."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.spark.session import SESSION_CONF, SMALL_CONF
from airflow_provider_db2cdc.sql.changes import change_rows


def main(spec_file: str, copies: str) -> None:
    """Apply the changes of a plan to copies of the states (`<copies>/<table>`), four tables at a time."""
    spec = JobSpec.from_json(Path(spec_file).read_text())
    spark = SparkSession.builder.appName("bare").getOrCreate()
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda task: _apply(spark, spec, task, Path(copies)), [t for t in spec.tables if t.rows]):
            pass
    spark.stop()


def _apply(spark: SparkSession, spec: JobSpec, task: TableTask, copies: Path) -> None:
    assert task.stored_lsn is not None
    session = spark.newSession()
    for key, value in {**SESSION_CONF, **SMALL_CONF}.items():
        session.conf.set(key, value)
    select = change_rows(task.schema, task.capture, LsnRange(task.stored_lsn, task.upto))
    rows = JdbcSource(spec.source).frame(session, select).localCheckpoint()
    rows.write.format("delta").mode("append").save(str(copies / f"{task.table.name}_log"))
    columns = {name: f"s.C{index}" for index, name in enumerate(task.schema.names)}
    target = DeltaTable.forPath(session, str(copies / task.table.name)).alias("t")
    merge = target.merge(rows.where("CO = 'I'").alias("s"), "t.ID = s.C0")
    merge.whenMatchedUpdate(set=dict(columns)).whenNotMatchedInsert(values=dict(columns)).execute()


if __name__ == "__main__":
    main(*sys.argv[1:])
