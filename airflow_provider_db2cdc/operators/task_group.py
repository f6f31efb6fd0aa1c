"""A whole pipeline as one task group, for the author of a DAG."""

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
from airflow_provider_db2cdc.operators.interval.schedule import check_schedule
from airflow_provider_db2cdc.operators.outcome import Db2CdcOutcomeOperator
from airflow_provider_db2cdc.operators.plan import Db2CdcPlanOperator

RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=30)}
"""Defaults that the default_args of the group and of the DAG override."""

ONE_AT_A_TIME: dict[str, Any] = {"max_active_tis_per_dag": 1}
"""A limit over all runs of a DAG. max_active_runs does not hold back a backfill next to scheduled runs."""

UNTEMPLATED = frozenset({"pipeline", "name", "spark.binary"})
"""Properties that are needed while the DAG is parsed. The pipeline names assets, and no task renders the binary."""

GROUP_ARGUMENTS = frozenset(field.alias for field in attrs.fields(TaskGroup) if field.init) - {"group_id"}


class Db2CdcTaskGroup(TaskGroup):
    """Plan, apply and commit one pipeline, and report the outcome: `plan >> apply >> commit >> outcome`.

    A tick without work skips all tasks after the plan. Each task runs once at a time, backfills included. Properties
    are checked while the DAG is parsed, without a database or a Variable. Values with a template are checked when they
    are used. The pipeline's name and `spark.binary` cannot have a template.

    :param group_id: The group's id. Without a `pipeline` it is also the pipeline's name.
    :param db2_conn_id: A connection of the IBM Db2 provider.
    :param spark_conn_id: The Spark connection.
    :param store_conn_id: A connection of type `aws`, for a target on S3.
    :param config: A whole configuration, as `config.files.load.load_config` reads it from a file, instead of
        properties.
    :param spark_submit: Further arguments of the apply task: whatever `SparkSubmitOperator` takes.
    :param properties: The pipeline's properties in snake_case (`target`, `table_include_list` ...) or, with
        ``**{"table.include.list": ...}``, under Debezium's own names. `database.*` is ignored in favour of the
        connection, except `database.time.zone`. Drivers' options are an error, because they are extras of the
        connection.
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
        store_conn_id = properties.pop("store_conn_id", None)
        given = _complete(group_id, config, properties)
        checked = given if isinstance(given, PipelineConfig) else PipelineConfig.from_properties(_literal(given))
        check_schedule(self.dag, checked)
        spark = {
            "spark_conn_id": spark_conn_id,
            "store_conn_id": store_conn_id,
            **spark_arguments(checked),
            **(spark_submit or {}),
        }
        with self:
            plan = Db2CdcPlanOperator(task_id="plan", config=given, db2_conn_id=db2_conn_id, **ONE_AT_A_TIME)
            apply = Db2CdcApplyOperator(
                task_id="apply", spec=plan.output, config=given, db2_conn_id=db2_conn_id, **{**ONE_AT_A_TIME, **spark}
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
    """Return the properties that can be checked while the DAG is parsed: those without a template.

    Spark's own settings are included, because the apply task renders their templates.

    :raises ConfigurationError: when a property that is needed now has a template, or two spellings of one property
        contradict each other.
    """
    properties, mistakes = flatten(properties)
    if mistakes:
        raise refusal(mistakes.values())
    templated = {name for name, value in properties.items() if "{{" in str(value) or "{%" in str(value)}
    if needed := sorted(name for name in templated if name.replace("_", ".") in UNTEMPLATED):
        raise ConfigurationError(f"{needed[0]} has a template, and is needed while the DAG is parsed", "Write it out.")
    # The apply task renders these, as `SparkSubmitOperator` does.
    templated -= {name for name in templated if name.replace("_", ".").startswith("spark.")}
    if any(map(_is_override, templated)):
        # The list of tables and their selects are checked against each other, so both must be complete.
        templated |= {name for name in properties if _is_override(name)}
    literal = {name: value for name, value in properties.items() if name not in templated}
    return {"target": "/templated", **literal} if "target" in properties else literal


def _is_override(name: str) -> bool:
    return name.replace("_", ".").startswith(OVERRIDES)


def spark_arguments(config: PipelineConfig) -> dict[str, Any]:
    """Return the arguments from the configuration's `spark.*`. The master comes from the connection."""
    spark = config.spark
    return {
        "conf": dict(spark.conf) or None,
        "packages": ",".join(spark.packages) or None,
        "jars_folder": str(spark.jars) if spark.jars else None,
        "spark_binary": spark.binary or None,
    }
