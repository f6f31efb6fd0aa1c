"""A pipeline from a configuration file: name it in DB2CDC_CONFIG, and this DAG runs it.

The command line takes the same file (`db2cdc tick --config ...`). The DAG reaches Db2 and Spark by Airflow's own
connections. It therefore ignores the file's `database` (which needs no password here), `driver.*` and `spark.master`.
It uses `database.time.zone` and the other `spark` settings.

A backfill of this DAG compares its interval with the source, and repairs what differs. It moves no offset.

- DB2CDC_CONFIG: path of the YAML or JSON file. Without it there is no DAG.
- DB2CDC_DAG_ID: the DAG's id, by default `db2cdc_<pipeline>`.
- DB2CDC_SCHEDULE: a cron expression or preset, by default every ten minutes. `none` allows manual runs only.
- DB2CDC_CATCHUP_FROM: a time with its zone, such as `2026-01-01T00:00:00Z`. Each run that was missed since then becomes
  one of its own. By default missed runs are left out. It is meant for `end.at=interval`.
- DB2CDC_DB2_CONN_ID, DB2CDC_SPARK_CONN_ID: the connections, by default `db2_default` and `spark_default`.

The DAG processor and the workers need all of them, and the file.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_db2cdc import Db2CdcTaskGroup
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.operators.interval.schedule import start_of_catchup

if path := os.environ.get("DB2CDC_CONFIG"):
    config = load_config(path, with_database=False)
    schedule = os.environ.get("DB2CDC_SCHEDULE", "*/10 * * * *")
    catchup_from = start_of_catchup(os.environ.get("DB2CDC_CATCHUP_FROM", ""))

    with DAG(
        dag_id=os.environ.get("DB2CDC_DAG_ID", f"db2cdc_{config.pipeline}"),
        schedule=None if schedule.strip().lower() in ("", "none") else schedule,
        start_date=catchup_from or datetime(2025, 1, 1, tzinfo=UTC),
        catchup=catchup_from is not None,
        max_active_runs=1,
        tags=["db2cdc"],
        doc_md=__doc__,
        params={
            "tables": Param(
                [],
                type=["null", "array"],
                items={"type": "string"},
                title="Tables of a backfill",
                description="One a line: SCHEMA.TABLE. Empty: all tables of the pipeline. Other runs ignore it.",
            ),
        },
    ):
        Db2CdcTaskGroup(
            group_id="tick",
            config=config,
            db2_conn_id=os.environ.get("DB2CDC_DB2_CONN_ID", "db2_default"),
            spark_conn_id=os.environ.get("DB2CDC_SPARK_CONN_ID", "spark_default"),
        )
