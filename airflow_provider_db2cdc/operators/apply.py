"""The second task of a tick: it applies the changes of all tables in one spark-submit."""

from __future__ import annotations

import time

from airflow.sdk import Context

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.errors import ConcurrentRunError, ConfigurationError
from airflow_provider_db2cdc.offsets.commit import raise_for_failures
from airflow_provider_db2cdc.operators.failure import LASTING_NAMES
from airflow_provider_db2cdc.operators.job import Db2CdcJobOperator
from airflow_provider_db2cdc.operators.summary import describe_table


class Db2CdcApplyOperator(Db2CdcJobOperator[JobResult]):
    """Run a tick's plan in Spark and return the result as JSON.

    See `Db2CdcJobOperator` for its arguments. `spec` is the JobSpec as JSON, from the plan task.

    The task succeeds if the job reports a result, even with failed tables. The commit task reports those, after it has
    stored the offsets of the others. A retry runs the same plan, and finds what the earlier try has written.

    No later run does the work of a backfill. So its task is retried if a table failed, and if another run wrote
    meanwhile. Only its last try succeeds with failed tables.
    """

    def read_spec(self) -> JobSpec:
        """Return the plan."""
        text = str(self.spec)
        if text in ("", "None"):
            raise ConfigurationError("there is no plan to apply", "Clear the plan task too: it returns the plan.")
        spec = JobSpec.from_json(text)
        if spec.repair is not None:
            self.lasting_names = LASTING_NAMES - {ConcurrentRunError.__name__}
        return spec

    def execute(self, context: Context) -> str:  # type: ignore[override]
        """Run the job and return the JobResult as a text. See `Db2CdcJobOperator.execute` for the errors."""
        result = self.run_spec(context)
        if result.failed:
            for table in result.tables:
                self.log.warning("%s", describe_table(table, time.time_ns() // 1_000_000 + result.source_ahead_ms))
            is_open = any(not table.is_rejected for table in result.failed)
            if result.repair is not None and is_open and has_retries(context):
                raise_for_failures(result)
        return result.to_xcom()


def has_retries(context: Context) -> bool:
    """Return whether Airflow tries the task again if it fails now."""
    task_instance = context["ti"]
    return task_instance.try_number <= task_instance.max_tries
