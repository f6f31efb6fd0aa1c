"""Batch change data capture from IBM Db2 into Delta Lake, run by Apache Airflow.

The flow of a tick, one DAG run of `Db2CdcTaskGroup`:

1. Db2's capture agent writes each committed change into change tables, and reports its capture position.
2. `Db2CdcPlanOperator` reads that position, registrations and counts by ibm_db, and offsets from Airflow Variables.
3. If nothing is new, the rest is skipped and Spark does not start. Else the plan fixes each table's range (a JobSpec).
4. `Db2CdcApplyOperator` passes the JobSpec to one spark-submit: `spark_jobs/apply.py`, with this package as a zip.
5. `tick` writes the ranges into the batch log first. A planned batch is only ever applied as planned.
6. `spark` reads the changes over JDBC into the change log, and merges their net effect into the current state.
7. New tables are snapshotted. Changes that were captured during the read take precedence over the rows that were read.
8. The job prints a JobResult with one result per table: what Delta proves. A failed table never stops the others.
9. `Db2CdcCommitOperator` moves the offsets there, and emits an asset event for each table that changed.
10. `Db2CdcOutcomeOperator` fails the run if a table failed, an offset was not kept, or a signal was refused.

The Airflow classes are imported on first use: inside Spark this package is a zip on a machine without Airflow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_provider_db2cdc.version import __version__

if TYPE_CHECKING:
    from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
    from airflow_provider_db2cdc.operators.apply import Db2CdcApplyOperator
    from airflow_provider_db2cdc.operators.asset import table_asset
    from airflow_provider_db2cdc.operators.commit import Db2CdcCommitOperator
    from airflow_provider_db2cdc.operators.maintain import Db2CdcMaintenanceOperator
    from airflow_provider_db2cdc.operators.outcome import Db2CdcOutcomeOperator
    from airflow_provider_db2cdc.operators.plan import Db2CdcPlanOperator
    from airflow_provider_db2cdc.operators.signal import Db2CdcSignalOperator
    from airflow_provider_db2cdc.operators.task_group import Db2CdcTaskGroup
    from airflow_provider_db2cdc.operators.verify import Db2CdcVerifyOperator
    from airflow_provider_db2cdc.sensors.change import Db2CdcChangeSensor
    from airflow_provider_db2cdc.sensors.snapshot import Db2CdcSnapshotSensor

__all__ = [
    "Db2CdcApplyOperator",
    "Db2CdcChangeSensor",
    "Db2CdcCommitOperator",
    "Db2CdcHook",
    "Db2CdcMaintenanceOperator",
    "Db2CdcOutcomeOperator",
    "Db2CdcPlanOperator",
    "Db2CdcSignalOperator",
    "Db2CdcSnapshotSensor",
    "Db2CdcTaskGroup",
    "Db2CdcVerifyOperator",
    "__version__",
    "table_asset",
]

_MODULES = {
    "Db2CdcApplyOperator": "operators.apply",
    "Db2CdcChangeSensor": "sensors.change",
    "Db2CdcCommitOperator": "operators.commit",
    "Db2CdcHook": "hooks.db2cdc",
    "Db2CdcMaintenanceOperator": "operators.maintain",
    "Db2CdcOutcomeOperator": "operators.outcome",
    "Db2CdcPlanOperator": "operators.plan",
    "Db2CdcSignalOperator": "operators.signal",
    "Db2CdcSnapshotSensor": "sensors.snapshot",
    "Db2CdcTaskGroup": "operators.task_group",
    "Db2CdcVerifyOperator": "operators.verify",
    "table_asset": "operators.asset",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
