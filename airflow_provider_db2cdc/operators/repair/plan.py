"""The plan of a backfill run: a repair of its interval."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, SignalError
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.repair.interval import backfill_interval

TABLES_KEY = "tables"


def plan_backfill(run: Any, timetable: Any, config: PipelineConfig, params: Mapping[str, Any], conn_id: str) -> JobSpec:
    """Plan the repair of a backfill run's interval.

    :raises AirflowSkipException: when nothing can be compared, as before the interval begins.
    :raises SignalError: when the run carries signals.
    """
    # Only a worker needs ibm_db. It is not available on every platform that parses DAGs.
    from airflow_provider_db2cdc.source.planning.plan import IdleTick
    from airflow_provider_db2cdc.source.planning.repair import RepairRequest, plan_repair

    if (run.conf or {}).get("signals"):
        raise SignalError("a backfill carries no signals", "Trigger a plain run with them.")
    tables = named_in({**params, **(run.conf or {})}.get(TABLES_KEY))
    interval, at_ms = backfill_interval(run, timetable), time.time_ns() // 1_000_000
    request = RepairRequest(f"{run.dag_id}/{run.run_id}", at_ms, interval, tables)
    with Db2CdcHook(conn_id).source() as source:
        planned = plan_repair(source, config, VariableOffsetStore(config.pipeline).read(), request)
    if isinstance(planned, IdleTick):
        raise AirflowSkipException(f"nothing to backfill: {planned.reason}. Spark is not started")
    return planned


def named_in(given: Any) -> list[str]:
    """Return the names of tables that a run's conf or form gives: a list, or a text with one in each line.

    :raises ConfigurationError: when it is something else.
    """
    items = given.splitlines() if isinstance(given, str) else given or []
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ConfigurationError(f"the run's {TABLES_KEY} are not a list of names", 'Write ["SCHEMA.TABLE"].')
    return [item.strip() for item in items if item.strip()]
