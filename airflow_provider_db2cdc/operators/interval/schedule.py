"""The schedule that a pipeline needs whose runs end at their data intervals."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_db2cdc.cdc.capture.interval import PROPERTY, DataInterval
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import DAG

SCHEDULED = "scheduled"
CATCHUP = "DB2CDC_CATCHUP_FROM"
WITHOUT_INTERVALS = {
    "NullTimetable": "it has no schedule",
    "AssetTriggeredTimetable": "it is scheduled on assets",
    "PartitionedAssetTimetable": "it is scheduled on assets",
    "PartitionedAtRuntime": "its runs have partitions instead of data intervals",
    "CronPartitionTimetable": "its runs have partitions instead of data intervals",
    "ContinuousTimetable": "@continuous has no fixed intervals",
}
"""Timetables whose runs have no data interval, with the reason. Older versions of Airflow lack some of them."""
REMEDY = f"Give the DAG a time schedule, such as a cron expression, or remove {PROPERTY}."


def check_schedule(dag: DAG | None, config: PipelineConfig) -> None:
    """Check that a DAG's runs have data intervals, if the pipeline's runs end there.

    :raises ConfigurationError: they have none.
    """
    if dag is None or config.end_at != "interval":
        return
    if reason := WITHOUT_INTERVALS.get(type(dag.timetable).__name__):
        raise ConfigurationError(f"{PROPERTY}=interval does not work in DAG {dag.dag_id}: {reason}", REMEDY)


def start_of_catchup(text: str) -> datetime | None:
    """Return the time from which a DAG catches up on missed runs. It is None for an empty text: the DAG does not.

    :raises ConfigurationError: the text is not a time with a zone.
    """
    if not text.strip():
        return None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        time = datetime.min
    if time.tzinfo is None:
        raise ConfigurationError(
            f"{CATCHUP} is {text!r}", "Give an ISO time with its zone, such as 2026-01-01T00:00:00Z, or nothing."
        )
    return time


def interval_of(run: Any, config: PipelineConfig) -> DataInterval | None:
    """Return the data interval at which a run ends. It is None for a run that is not scheduled.

    :raises ConfigurationError: the run is scheduled without a data interval.
    """
    if config.end_at != "interval" or run.run_type != SCHEDULED:
        return None
    if run.data_interval_end is None:
        raise ConfigurationError(f"{PROPERTY} is interval, and the run {run.run_id} has no data interval", REMEDY)
    return DataInterval.of(run.data_interval_start, run.data_interval_end)
