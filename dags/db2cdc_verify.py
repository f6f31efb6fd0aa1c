"""Compare a pipeline's target with its source: by hand, or on a schedule. A run fails if a table differs.

It runs next to the DAG of `db2cdc_pipeline.py`, and changes nothing in the target but its report.

With Airflow's REST API, POST the form's fields as `conf` to `/api/v2/dags/<this DAG>/dagRuns`. `logical_date` must be
given: `{"logical_date": null, "conf": {"tables": ["SALES.ORDERS"], "quick": true}}`.

It takes the same environment variables as `db2cdc_pipeline.py`, and DB2CDC_VERIFY_SCHEDULE: a cron expression or
preset, by default none (manual runs only). Without DB2CDC_CONFIG there is no DAG.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_db2cdc import Db2CdcVerifyOperator
from airflow_provider_db2cdc.config.files.load import load_config

if path := os.environ.get("DB2CDC_CONFIG"):
    config = load_config(path, with_database=False)
    schedule = os.environ.get("DB2CDC_VERIFY_SCHEDULE", "none")

    with DAG(
        dag_id=f"{os.environ.get('DB2CDC_DAG_ID', f'db2cdc_{config.pipeline}')}_verify",
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
                description="One a line: SCHEMA.TABLE, as the catalog spells it. Empty: all tables of the pipeline.",
            ),
            "quick": Param(
                False, type="boolean", title="Quick", description="Compare only numbers of rows, not the rows."
            ),
            "show_keys": Param(
                False, type="boolean", title="Show keys", description="Log between which keys rows differ."
            ),
        },
    ):
        Db2CdcVerifyOperator(
            task_id="verify",
            config=config,
            tables="{{ (params.tables or []) | join('\n') }}",
            quick="{{ params.quick }}",
            show_keys="{{ params.show_keys }}",
            db2_conn_id=os.environ.get("DB2CDC_DB2_CONN_ID", "db2_default"),
            spark_conn_id=os.environ.get("DB2CDC_SPARK_CONN_ID", "spark_default"),
            retries=2,
        )
