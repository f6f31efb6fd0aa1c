"""The second task of a tick: it applies the changes of all tables in one spark-submit."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowSkipException
from airflow.sdk import Context

from airflow_provider_db2cdc.cdc.document import JobDocument
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.channels.channel import AIRFLOW_CHANNEL, read_channels
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConcurrentRunError, ConfigurationError, Db2CdcError
from airflow_provider_db2cdc.offsets.commit import commit_tick, raise_for_failures
from airflow_provider_db2cdc.offsets.repetition import Repetition
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.commit import airflow_announcements
from airflow_provider_db2cdc.operators.failure import LASTING_NAMES
from airflow_provider_db2cdc.operators.job import Db2CdcJobOperator
from airflow_provider_db2cdc.operators.plan import planned_tick, read_config
from airflow_provider_db2cdc.operators.summary import describe_table
from airflow_provider_db2cdc.submit.handover import Following

log = logging.getLogger(__name__)


class Db2CdcApplyOperator(Db2CdcJobOperator[JobResult]):
    """Run a tick's plan in Spark and return the result as JSON.

    See `Db2CdcJobOperator` for its arguments. `spec` is the JobSpec as JSON, from the plan task.

    The task succeeds if the job reports a result, even with failed tables. The commit task reports those, after it has
    stored the offsets of the others. A retry runs the same plan, and finds what the earlier try has written.

    With `tick.repeat.s` the task continues after the plan's tick. It moves the offsets, plans again, and hands the plan
    to the same Spark application. The last tick's result is returned. A retry then plans again, unless the first plan
    is not committed yet. It is skipped if there is nothing to do.

    No later run does the work of a backfill. So its task is retried if a table failed, and if another run wrote
    meanwhile. Only its last try succeeds with failed tables.

    :param config: The pipeline's properties, for `tick.repeat.s`. (templated)
    """

    template_fields: Sequence[str] = (*Db2CdcJobOperator.template_fields, "config")

    def __init__(self, *, config: PipelineConfig | Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config

    def read_spec(self) -> JobSpec:
        """Return the plan. In a retry of a task with several ticks, it is a new one.

        A new plan would lack the signals that this run was triggered with. So a plan with signals of its run stays. The
        job refuses it if a later plan was done meanwhile.
        """
        spec = self._given_spec()
        ticks = self._further_ticks(spec)
        has_own_signals = any(signal.channel == AIRFLOW_CHANNEL for signal in spec.signals)
        if ticks is None or has_own_signals or not ticks.have_committed(spec):
            return spec
        planned = ticks.plan()
        if planned is None:
            raise AirflowSkipException("idle: an earlier try has done the plan, and there is nothing new")
        return planned

    def following(self, spec: JobDocument[JobResult]) -> Following[JobResult] | None:
        """Return what plans the further ticks, or None without `tick.repeat.s`. A backfill has none."""
        assert isinstance(spec, JobSpec)
        ticks = self._further_ticks(spec)
        if ticks is None:
            return None
        return Repetition(ticks.plan, ticks.commit, time.monotonic() + ticks.config.repeat_s).following

    def _further_ticks(self, spec: JobSpec) -> FurtherTicks | None:
        config = None if self.config is None else read_config(self.config)
        if config is None or not config.repeat_s or spec.repair is not None:
            return None
        return FurtherTicks(config, self.db2_conn_id, spec.run_id)

    def _given_spec(self) -> JobSpec:
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


@dataclass(frozen=True)
class FurtherTicks:
    """Plans and commits the ticks of one run after its first one, with the offsets in Airflow's Variables.

    The asset events of all of them are emitted by the commit task. A commit here stores their ranges.
    """

    config: PipelineConfig
    db2_conn_id: str
    run_id: str

    def plan(self) -> JobSpec | None:
        """Return the next plan, or None if there is nothing to do. It has the signals of all channels but Airflow's.

        :raises Db2CdcError: when it cannot be planned, for one because Airflow's API does not answer.
        """
        from airflow_provider_db2cdc.source.planning.plan import TickRun

        signals, at_ms = read_channels(self.config), time.time_ns() // 1_000_000
        with _own_errors():
            planned = planned_tick(self.config, self.db2_conn_id, TickRun(self.run_id, at_ms, signals))
        return planned if isinstance(planned, JobSpec) else None

    def commit(self, result: JobResult) -> bool:
        """Move the offsets to a result, and return whether all were stored.

        :raises Db2CdcError: when the summary cannot be read or stored, or Airflow's API does not answer.
        """
        now_ms = time.time_ns() // 1_000_000
        for table in result.tables:
            if table.status != "unchanged":
                log.info("%s", describe_table(table, now_ms + result.source_ahead_ms))
        with _own_errors():
            offsets = VariableOffsetStore(result.pipeline)
            _, unkept = commit_tick(result, offsets, airflow_announcements(result.pipeline))
        return unkept is None

    def have_committed(self, spec: JobSpec) -> bool:
        """Whether an earlier try has committed this plan, or a later one."""
        return VariableOffsetStore(self.config.pipeline).summary().planned_at_ms >= spec.planned_at_ms


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise an AirflowException as an error of this package. By its own kind, the base class reports a job that failed.

    :raises Db2CdcError: when Airflow raises an error.
    """
    try:
        yield
    except AirflowException as error:
        raise Db2CdcError(str(error)) from error
