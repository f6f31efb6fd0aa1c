"""Ask a pipeline for something by hand: press Trigger, pick what to do and the tables, follow it.

It sends a signal to the DAG of `db2cdc_pipeline.py`, and waits until the signal has come to its end. The log of
`follow` and its XCom `progress` show how far a snapshot is. The same form heals tables. It stops, pauses and resumes
snapshots. It also restarts tables that cannot continue, and restores lost offsets.

With Airflow's REST API, POST the form's fields as `conf` to `/api/v2/dags/<this DAG>/dagRuns`. `logical_date` must be
given: `{"logical_date": null, "conf": {"tables": ["SALES.ORDERS"], "conditions": ["SALES.ORDERS: STATUS = 1"]}}`.

It takes the same environment variables as `db2cdc_pipeline.py`. Without DB2CDC_CONFIG there is no DAG.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_db2cdc import Db2CdcSignalOperator, Db2CdcSnapshotSensor
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.forms.params import form_params
from airflow_provider_db2cdc.operators.signal import form_data

if path := os.environ.get("DB2CDC_CONFIG"):
    config = load_config(path, with_database=False)
    pipeline_dag = os.environ.get("DB2CDC_DAG_ID", f"db2cdc_{config.pipeline}")

    with DAG(
        dag_id=f"{pipeline_dag}_snapshot",
        schedule=None,
        start_date=datetime(2025, 1, 1, tzinfo=UTC),
        # A run may follow its snapshot for days. The run that pauses or stops the snapshot must not wait for it.
        max_active_runs=16,
        tags=["db2cdc"],
        doc_md=__doc__,
        params=form_params(config),
    ):
        send = Db2CdcSignalOperator(
            task_id="send", trigger_dag_id=pipeline_dag, signal_type="{{ params.action }}", data=form_data
        )
        send >> Db2CdcSnapshotSensor(
            task_id="follow",
            pipeline=config.pipeline,
            signal_id=send.output,
            trigger_dag_id=pipeline_dag,
            trigger_run_id=send.output["trigger_run_id"],
            mode="reschedule",
            poke_interval=15,
            timeout=7 * 24 * 3600,
        )
