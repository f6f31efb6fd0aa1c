"""Maintain the Delta tables of a pipeline's target: trim, compact, purge and vacuum them, by hand or on a schedule.

It runs next to the DAG of `db2cdc_pipeline.py` and needs no connection to Db2.

It takes the same environment variables as `db2cdc_pipeline.py`, and DB2CDC_MAINTENANCE_SCHEDULE: a cron expression or
preset, by default `@daily`. `none` allows manual runs only. Without DB2CDC_CONFIG there is no DAG.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_db2cdc import Db2CdcMaintenanceOperator
from airflow_provider_db2cdc.config.files.load import load_config

if path := os.environ.get("DB2CDC_CONFIG"):
    config = load_config(path, with_database=False)
    schedule = os.environ.get("DB2CDC_MAINTENANCE_SCHEDULE", "@daily")

    with DAG(
        dag_id=f"{os.environ.get('DB2CDC_DAG_ID', f'db2cdc_{config.pipeline}')}_maintenance",
        schedule=None if schedule.strip().lower() in ("", "none") else schedule,
        start_date=datetime(2025, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["db2cdc"],
        doc_md=__doc__,
        params={
            "tables": Param(
                [],
                type=["null", "array"],
                items={"type": "string"},
                title="Tables",
                description="One a line: SCHEMA.TABLE. Empty: all tables that ticks have written.",
            ),
            "report_only": Param(
                False, type="boolean", title="Report only", description="Report what would be done, and write nothing."
            ),
        },
    ):
        Db2CdcMaintenanceOperator(
            task_id="maintain",
            config=config,
            tables="{{ (params.tables or []) | join('\n') }}",
            report_only="{{ params.report_only }}",
            spark_conn_id=os.environ.get("DB2CDC_SPARK_CONN_ID", "spark_default"),
        )
