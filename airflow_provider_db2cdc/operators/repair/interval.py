"""The interval of a backfill run. A trigger timetable gives its runs an empty one, so its schedule is asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pendulum
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.errors import ConfigurationError

REMEDY = "Give the DAG a schedule with data intervals, such as CronDataIntervalTimetable."


def backfill_interval(run: Any, timetable: Any) -> DataInterval:
    """Return the interval of a backfill run.

    Under a cron expression, Airflow's runs have a data interval without a duration. Then it is the time since the
    schedule's previous run.

    :raises ConfigurationError: the run has no data interval, or its schedule does not say where it begins.
    """
    begin, end = run.data_interval_start, run.data_interval_end
    if end is None:
        raise ConfigurationError(f"the backfill run {run.run_id} has no data interval", REMEDY)
    if begin is None or begin >= end:
        begin = max(_previous(timetable, end), default=None)
    if begin is None:
        kind = type(timetable).__name__
        problem = f"the data interval of {run.run_id} is empty, and {kind} does not say where it begins"
        raise ConfigurationError(problem, REMEDY)
    return DataInterval.of(begin, end)


def _previous(timetable: Any, end: datetime) -> Iterator[datetime]:
    """Yield the times before `end` at which the schedule's parts had their last run."""
    for each in getattr(timetable, "timetables", None) or [getattr(timetable, "timetable", timetable)]:
        if expression := _field(each, "expression"):
            yield _previous_cron(expression, _field(each, "timezone"), end)
        elif delta := _field(each, "delta"):
            yield end - delta


def _previous_cron(expression: str, timezone: Any, end: datetime) -> datetime:
    interval = CronDataIntervalTimetable(expression, timezone).infer_manual_data_interval(
        run_after=pendulum.instance(end)
    )
    return interval.end if interval.end < end else interval.start


def _field(timetable: Any, name: str) -> Any:
    """Return a field of a timetable. Older versions of Airflow name it with an underscore."""
    return getattr(timetable, name, None) or getattr(timetable, f"_{name}", None)
