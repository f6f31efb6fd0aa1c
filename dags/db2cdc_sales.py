"""A pipeline written out, and a DAG that runs when one of its tables has changed: a start for your own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_db2cdc import Db2CdcTaskGroup, table_asset

START = datetime(2025, 1, 1, tzinfo=UTC)

with DAG("sales_cdc", schedule="*/10 * * * *", start_date=START, catchup=False, max_active_runs=1, tags=["db2cdc"]):
    Db2CdcTaskGroup(
        group_id="sales",
        db2_conn_id="db2_sales",
        spark_conn_id="spark_default",
        table_include_list=[r"SALES\..*"],
        target="/lake/sales",
        spark_submit={"driver_memory": "2g"},
    )

with DAG("sales_cdc_report", schedule=table_asset("sales", "SALES.ORDERS"), start_date=START, tags=["db2cdc"]):

    @task
    def report(triggering_asset_events: dict[Any, Any] | None = None) -> None:
        """Log how many changes the orders had, and up to which LSN."""
        for asset, events in (triggering_asset_events or {}).items():
            for event in events:
                # An event that a person creates has no range.
                if "to_lsn" in event.extra:
                    print(f"{asset}: {event.extra['rows']} changes up to {event.extra['to_lsn']}")  # noqa: T201

    report()
