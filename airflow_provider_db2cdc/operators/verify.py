"""The operator that compares a pipeline's target with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from airflow_provider_db2cdc.cdc.verify.document import VerifyResult, VerifySpec
from airflow_provider_db2cdc.cdc.verify.outcome import check_outcome
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.job import Db2CdcJobOperator
from airflow_provider_db2cdc.operators.plan import read_config
from airflow_provider_db2cdc.operators.signal import OWN_ID
from airflow_provider_db2cdc.operators.task_group import spark_arguments

CONTINUE = "A retry of the task continues (set retries), and so does a task with the same verification_id."


class Db2CdcVerifyOperator(Db2CdcJobOperator[VerifyResult]):
    """Compare tables with their current state in Spark, and return the verdicts as JSON.

    It runs next to ticks, and writes only its report (`_db2cdc/verifications`). The task fails if a table differs, and
    is not retried then. A retry, as after a kill, continues with the chunks that are not compared yet. A cleared task
    begins again. See `Db2CdcJobOperator` for the other arguments.

    :param config: The pipeline's properties, as the plan task has them (templated). If `load_config` has read them from
        a file, its `spark.*` are used too.
    :param tables: Names of tables (SCHEMA.TABLE); by default all of the pipeline. (templated)
    :param quick: Compare only numbers of rows. (templated)
    :param show_keys: Show in the log between which keys rows differ. (templated)
    :param budget_s: Seconds after which no further chunks are read. The task then fails, and a retry continues.
    :param verification_id: The verification's id. By default it is made from this run and task. (templated)
    """

    template_fields: Sequence[str] = (
        *Db2CdcJobOperator.template_fields,
        *("config", "tables", "quick", "show_keys", "verification_id"),
    )
    ui_color = "#e3f3df"

    def __init__(  # noqa: PLR0913 - each parameter is one of the DAG's author.
        self,
        *,
        config: PipelineConfig | Mapping[str, Any],
        tables: Sequence[str] | str = (),
        quick: bool | str = False,
        show_keys: bool | str = False,
        budget_s: float | None = None,
        verification_id: str = OWN_ID,
        **kwargs: Any,
    ) -> None:
        spark = spark_arguments(config) if isinstance(config, PipelineConfig) else {}
        super().__init__(spec="", **{**spark, **kwargs})
        self.config = config
        self.tables = tables
        self.quick = quick
        self.show_keys = show_keys
        self.budget_s = budget_s
        self.verification_id = verification_id

    def read_spec(self) -> VerifySpec:
        """Plan the verification."""
        # Only a worker needs ibm_db. It is not available on every platform that parses DAGs.
        from airflow_provider_db2cdc.source.planning.verification import VerifyRequest, plan_verification

        request = VerifyRequest(
            self.verification_id, table_names(self.tables), is_on(self.quick), is_on(self.show_keys), self.budget_s
        )
        with Db2CdcHook(self.db2_conn_id).source() as source:
            return plan_verification(source, read_config(self.config), request)

    def execute(self, context: Context) -> str:  # type: ignore[override]
        """Verify, and return the VerifyResult as JSON.

        :raises AirflowFailException: when a table differs, or cannot be verified at all.
        :raises Db2CdcError: when a table could not be verified now, or not completely. A retry continues.
        """
        result = self.run_spec(context)
        for verdict in result.tables:
            self.log.info(
                "verified: table=%s %s source_rows=%d state_rows=%d not_compared=%d %s",
                verdict.table,
                verdict.status,
                verdict.source_rows,
                verdict.state_rows,
                verdict.keys_changed,
                verdict.error,
            )
        with fail_at_once():
            check_outcome(result, CONTINUE)
        return result.to_json()


def table_names(tables: Sequence[str] | str) -> list[str]:
    """Return the names of tables. A text has one in each line, as a rendered template or a form gives them."""
    lines = tables.splitlines() if isinstance(tables, str) else [*tables]
    return [line.strip() for line in lines if line.strip()]


def is_on(value: bool | str) -> bool:
    """Return whether a switch is on. A rendered template gives it as text."""
    return str(value).strip().lower() in ("true", "1", "yes", "on")
