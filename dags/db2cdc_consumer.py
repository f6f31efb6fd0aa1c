"""A DAG that gets each change of a table exactly once: a start for your own.

It is scheduled on the table's asset. Its task reads the range of the events that triggered the run, and appends how
many changes of each kind there were. A retry or a cleared run reads the same range again, and Delta skips its write.

- SALES_TARGET: the target of the pipeline, by default `/lake/sales`.
- SALES_REPORT: the Delta table to append to, by default `/lake/reports/order_changes`.

The worker needs the extra `spark` of this package, and Delta in its `spark-defaults.conf`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_db2cdc import table_asset

TARGET = os.environ.get("SALES_TARGET", "/lake/sales")
REPORT = os.environ.get("SALES_REPORT", "/lake/reports/order_changes")

with DAG(
    "sales_order_changes",
    schedule=table_asset("sales", "SALES.ORDERS"),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["db2cdc"],
    doc_md=__doc__,
):

    @task
    def count_changes(triggering_asset_events: dict[Any, Any] | None = None) -> None:
        """Append the number of changes by kind."""
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as F

        from airflow_provider_db2cdc.read import asset_event_range, read_changes

        events = [event for found in (triggering_asset_events or {}).values() for event in found]
        within = asset_event_range(*(event.extra for event in events))
        spark = SparkSession.builder.appName("order changes").getOrCreate()
        changes = read_changes(spark, TARGET, "SALES.ORDERS", within, tombstones=False)
        counts = changes.groupBy("op").count().withColumn("to_batch", F.lit(within.upto))
        # Each range has an id of its own, so runs may end in any order.
        once = {"txnAppId": f"order_changes/{within.log_id}/{within.after}", "txnVersion": str(within.upto)}
        counts.write.format("delta").mode("append").options(**once).save(REPORT)

    count_changes()
