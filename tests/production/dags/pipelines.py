"""Three pipelines on one schedule, each with a DAG that asks it for snapshots. The environment has their settings.

`south` ends at its data interval, so that its plan waits in the triggerer. In `west` a sensor waits there, and a run
does one tick after another.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_db2cdc import Db2CdcChangeSensor, Db2CdcSignalOperator, Db2CdcSnapshotSensor, Db2CdcTaskGroup

SCHEDULE, LAKE, JARS = (os.environ[f"PRODUCTION_{name}"] for name in ("SCHEDULE", "LAKE", "JARS"))
REPEAT_S = 100
PIPELINES: dict[str, dict[str, Any]] = {
    "north": {},
    "south": {"end_at": "interval"},
    "west": {"tick_repeat_s": REPEAT_S},
}
START = datetime(2025, 1, 1, tzinfo=UTC)
TASKS = {"retries": 5, "retry_delay": timedelta(seconds=15), "execution_timeout": timedelta(minutes=30)}
SPARK = {
    "pool": "spark",
    "jars_folder": JARS,
    "driver_memory": "1g",
    "conf": {"spark.driver.extraJavaOptions": os.environ["PRODUCTION_JAVA_OPTIONS"]},
}


def properties_of(name: str) -> dict[str, Any]:
    """Return a pipeline's properties."""
    tables = [rf"{name.upper()}\..*"]
    return {"pipeline": name, "table_include_list": tables, "target": f"{LAKE}/{name}", **PIPELINES[name]}


for name in PIPELINES:
    with DAG(f"{name}_cdc", schedule=SCHEDULE, start_date=START, catchup=False, max_active_runs=1, default_args=TASKS):
        group = Db2CdcTaskGroup(group_id="tick", spark_submit=SPARK, **properties_of(name))
        if name == "west":
            sensor = Db2CdcChangeSensor(
                task_id="changes", config=properties_of(name), poke_interval=2, timeout=30, soft_fail=True
            )
            sensor >> group

    with DAG(
        f"{name}_snapshot",
        schedule=None,
        start_date=START,
        default_args=TASKS,
        params={"tables": Param([], type="array", items={"type": "string"})},
        render_template_as_native_obj=True,
    ):
        send = Db2CdcSignalOperator(
            task_id="send",
            trigger_dag_id=f"{name}_cdc",
            signal_type="execute-snapshot",
            data={"data-collections": "{{ params.tables }}"},
            wait_for_completion=True,
            deferrable=True,
            poke_interval=3,
        )
        send >> Db2CdcSnapshotSensor(
            task_id="follow",
            pipeline=name,
            signal_id=send.output,
            trigger_dag_id=f"{name}_cdc",
            trigger_run_id=send.output["trigger_run_id"],  # type: ignore[index]
            mode="reschedule",
            poke_interval=5,
        )
