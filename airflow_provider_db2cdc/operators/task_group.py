"""A whole pipeline as one group of tasks: what a DAG's author writes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import attrs
from airflow.sdk import TaskGroup

from airflow_provider_db2cdc.cdc.selection.select_override import PROPERTY as OVERRIDES
from airflow_provider_db2cdc.config.parsing import flatten, refusal
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.config.properties import OF_THE_CONNECTION, is_address, is_driver_option
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
from airflow_provider_db2cdc.operators.apply import Db2CdcApplyOperator
from airflow_provider_db2cdc.operators.asset import pipeline_alias
from airflow_provider_db2cdc.operators.commit import Db2CdcCommitOperator
from airflow_provider_db2cdc.operators.outcome import Db2CdcOutcomeOperator
from airflow_provider_db2cdc.operators.plan import Db2CdcPlanOperator

RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=30)}
"""Beneath the group's and the DAG's default_args."""

ONE_AT_A_TIME: dict[str, Any] = {"max_active_tis_per_dag": 1}
"""Counts all runs of a DAG: a backfill runs beside the scheduled runs that max_active_runs holds back."""

UNTEMPLATED = frozenset({"pipeline", "name", "spark.binary"})
"""Properties that are needed while the DAG is parsed: the pipeline names assets, and no task renders the binary."""

GROUP_ARGUMENTS = frozenset(field.alias for field in attrs.fields(TaskGroup) if field.init) - {"group_id"}


class Db2CdcTaskGroup(TaskGroup):
    """Plan, apply, commit and tell the outcome of one pipeline: `plan >> apply >> commit >> outcome`.

    An idle tick skips all but the plan. One run at a time does each task, backfills included. Properties are checked
    while the DAG is parsed, without a database or a Variable; values with a template are checked when they are used,
    and the pipeline's name and `spark.binary` may have none.

    :param group_id: The group's id; also the pipeline's name when no `pipeline` is given.
    :param db2_conn_id: A connection of the IBM Db2 provider.
    :param spark_conn_id: The Spark connection.
    :param config: A whole configuration, as `config_file.load_config` reads it from a file; or give properties.
    :param spark_submit: Further arguments of the apply task: whatever `SparkSubmitOperator` takes.
    :param properties: The pipeline's properties in snake_case (`target`, `table_include_list` ...) or, with
        ``**{"table.include.list": ...}``, under Debezium's own names. `database.*` is left to the connection; drivers'
        options are refused, for they are its extras.
        Arguments of `TaskGroup` (tooltip, default_args ...) are passed on to it.
    """

    def __init__(
        self,
        group_id: str = "db2cdc",
        *,
        db2_conn_id: str = Db2CdcHook.default_conn_name,
        spark_conn_id: str = "spark_default",
        config: PipelineConfig | None = None,
        spark_submit: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        group = {name: properties.pop(name) for name in list(properties) if name in GROUP_ARGUMENTS}
        super().__init__(group_id=group_id, **group)
        self.default_args = {**RETRIES, **(self.dag.default_args if self.dag else {}), **self.default_args}
        given = _complete(group_id, config, properties)
        checked = given if isinstance(given, PipelineConfig) else PipelineConfig.from_properties(_literal(given))
        spark = {"spark_conn_id": spark_conn_id, **_spark_arguments(checked), **(spark_submit or {})}
        with self:
            plan = Db2CdcPlanOperator(task_id="plan", config=given, db2_conn_id=db2_conn_id, **ONE_AT_A_TIME)
            apply = Db2CdcApplyOperator(
                task_id="apply", spec=plan.output, db2_conn_id=db2_conn_id, **{**ONE_AT_A_TIME, **spark}
            )
            commit = Db2CdcCommitOperator(
                task_id="commit",
                result=apply.output,
                config=given,
                fail_for_tables=False,
                outlets=[pipeline_alias(checked.pipeline)],
                **ONE_AT_A_TIME,
            )
            Db2CdcOutcomeOperator(task_id="outcome", result=apply.output, unkept=commit.output, **ONE_AT_A_TIME)


def _complete(
    group_id: str, config: PipelineConfig | None, properties: dict[str, Any]
) -> PipelineConfig | dict[str, Any]:
    if config is not None:
        if properties:
            raise ConfigurationError(
                f"config and {', '.join(sorted(properties))} are both given", "Write the properties into the config."
            )
        return config
    if options := sorted(name for name in properties if is_driver_option(name)):
        raise ConfigurationError(f"{options[0]} has no meaning in a DAG", OF_THE_CONNECTION)
    given = {name: value for name, value in properties.items() if not is_address(name)}
    return given if {"pipeline", "name"} & set(given) else {**given, "pipeline": group_id}


def _literal(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that can be checked now: a template has no value yet, but those of Spark's own settings.

    :raises ConfigurationError: one that is needed now has a template, or two forms of one contradict each other.
    """
    properties, mistakes = flatten(properties)
    if mistakes:
        raise refusal(mistakes.values())
    templated = {name for name, value in properties.items() if "{{" in str(value) or "{%" in str(value)}
    if needed := sorted(name for name in templated if name.replace("_", ".") in UNTEMPLATED):
        raise ConfigurationError(f"{needed[0]} has a template, and is needed while the DAG is parsed", "Write it out.")
    # The apply task renders them itself, as `SparkSubmitOperator` does.
    templated -= {name for name in templated if name.replace("_", ".").startswith("spark.")}
    if any(map(_is_override, templated)):
        # A list of tables and their selects are checked against each other.
        templated |= {name for name in properties if _is_override(name)}
    literal = {name: value for name, value in properties.items() if name not in templated}
    return {"target": "/templated", **literal} if "target" in properties else literal


def _is_override(name: str) -> bool:
    return name.replace("_", ".").startswith(OVERRIDES)


def _spark_arguments(config: PipelineConfig) -> dict[str, Any]:
    """Return what the configuration's own `spark.*` says; the master is the connection's."""
    spark = config.spark
    return {
        "conf": dict(spark.conf) or None,
        "packages": ",".join(spark.packages) or None,
        "jars_folder": str(spark.jars) if spark.jars else None,
        "spark_binary": spark.binary or None,
    }
