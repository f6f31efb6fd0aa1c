"""The operator that maintains the Delta tables of a pipeline's target."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow.sdk import Context

from airflow_provider_db2cdc.cdc.maintenance.job import (
    MaintenanceResult,
    MaintenanceSpec,
    maintenance_spec,
    raise_for_failed_tables,
)
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.job import Db2CdcJobOperator
from airflow_provider_db2cdc.operators.plan import read_config
from airflow_provider_db2cdc.operators.signal import OWN_ID
from airflow_provider_db2cdc.operators.task_group import spark_arguments
from airflow_provider_db2cdc.operators.verify import is_on, table_names


class Db2CdcMaintenanceOperator(Db2CdcJobOperator[MaintenanceResult]):
    """Trim, compact and clean the Delta tables of a target in Spark, and return what was done as JSON.

    It needs no connection to Db2, and runs next to ticks. A tick whose write meets it repeats that write. See
    `Db2CdcJobOperator` for the other arguments.

    :param config: The pipeline's properties, as the plan task has them (templated). If `load_config` has read them from
        a file, its `spark.*` are used too.
    :param tables: Names of tables (SCHEMA.TABLE); by default all that ticks have written. (templated)
    :param report_only: Only report what would be done. (templated)
    :param run_name: The run's name in the result. By default it is made from this run and task. (templated)
    """

    template_fields: Sequence[str] = (
        *Db2CdcJobOperator.template_fields,
        *("config", "tables", "report_only", "run_name"),
    )
    ui_color = "#ece4f5"

    def __init__(
        self,
        *,
        config: PipelineConfig | Mapping[str, Any],
        tables: Sequence[str] | str = (),
        report_only: bool | str = False,
        run_name: str = OWN_ID,
        **kwargs: Any,
    ) -> None:
        spark = spark_arguments(config) if isinstance(config, PipelineConfig) else {}
        super().__init__(spec="", **{**spark, **kwargs})
        self.config = config
        self.tables = tables
        self.report_only = report_only
        self.run_name = run_name

    def login(self) -> dict[str, str]:
        """Return nothing: the job does not log in to Db2."""
        return {}

    def read_spec(self) -> MaintenanceSpec:
        """Return the spec, with the journal position up to which this Airflow has reported."""
        config = read_config(self.config)
        summary = VariableOffsetStore(config.pipeline).summary()
        tables = tuple(parse_table(name, "tables") for name in table_names(self.tables))
        spec = maintenance_spec(config, summary, self.run_name, time.time_ns() // 1_000_000)
        return replace(spec, tables=tables, dry_run=is_on(self.report_only))

    def execute(self, context: Context) -> str:  # type: ignore[override]
        """Maintain the tables, and return the MaintenanceResult as JSON.

        :raises AirflowFailException: when maintenance of a table failed. The others are maintained.
        """
        result = self.run_spec(context)
        with fail_at_once():
            raise_for_failed_tables(result)
        return result.to_json()
