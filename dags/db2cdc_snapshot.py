"""Ask a pipeline for a snapshot by hand: press Trigger, pick tables, follow it.

It sends a signal to the DAG of `db2cdc_pipeline.py`, and waits until the signal has come to its end. The log of
`follow` and its XCom `progress` show how far the snapshot is. The same form stops, pauses and resumes snapshots.

With Airflow's REST API, POST the form's fields as `conf` to `/api/v2/dags/<this DAG>/dagRuns`. `logical_date` must be
given: `{"logical_date": null, "conf": {"tables": ["SALES.ORDERS"], "conditions": ["SALES.ORDERS: STATUS = 1"]}}`.

It takes the same environment variables as `db2cdc_pipeline.py`. Without DB2CDC_CONFIG there is no DAG.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_db2cdc import Db2CdcSignalOperator, Db2CdcSnapshotSensor
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.offsets.variable import known_tables
from airflow_provider_db2cdc.operators.signal import form_data

if path := os.environ.get("DB2CDC_CONFIG"):
    config = load_config(path, with_database=False)
    pipeline_dag = os.environ.get("DB2CDC_DAG_ID", f"db2cdc_{config.pipeline}")
    known = known_tables(config.pipeline)
    carried = ", ".join(f"`{pattern}`" for pattern in config.selection.table_include) or "all captured tables"

    with DAG(
        dag_id=f"{pipeline_dag}_snapshot",
        schedule=None,
        start_date=datetime(2025, 1, 1, tzinfo=UTC),
        # A run may follow its snapshot for days. The run that pauses or stops the snapshot must not wait for it.
        max_active_runs=16,
        tags=["db2cdc"],
        doc_md=__doc__,
        params={
            "action": Param(
                "execute-snapshot",
                type="string",
                title="What to do",
                enum=["execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"],
                description="Execute uses all fields, stop tables and kind, pause and resume kind. Leave others empty.",
            ),
            "known_tables": Param(
                [],
                type=["null", "array"],
                items={"type": "string"},
                **({"examples": [*known], "values_display": known} if known else {}),
                title="Tables",
                description="Those that the pipeline's last tick carried. To stop without any table stops all.",
            ),
            "tables": Param(
                [],
                type=["null", "array"],
                items={"type": "string"},
                title="Tables by name or pattern",
                description="One a line: `SCHEMA.TABLE`, a regular expression on it, or quoted names as in "
                f'`"my schema"."my.table"`. This pipeline carries {carried}.',
            ),
            "type": Param(
                None,
                type=["null", "string"],
                title="Kind of snapshot",
                enum=[None, "incremental", "blocking"],
                values_display={"None": "default"},
                description="Incremental: chunk by chunk, in as many ticks as it takes. Blocking: all at one moment. "
                "Default: incremental to execute, both to stop, pause or resume.",
            ),
            "conditions": Param(
                [],
                type=["null", "array"],
                items={"type": "string"},
                title="Only some rows",
                description="One a line: a table, a colon, a blank and an SQL condition: `SALES.ORDERS: STATUS = 1`. "
                "A blocking snapshot also takes a whole select. Rows that were deleted are then not looked for.",
            ),
            "surrogate_key": Param(
                "",
                type=["null", "string"],
                title="Surrogate key",
                description="A column with unique values and no nulls to cut chunks by, instead of the table's key.",
            ),
        },
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
