"""The first task of a tick: it plans the work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseOperator, Context

from airflow_provider_db2cdc.cdc.capture.interval import CaptureBehindError, DataInterval
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.signal.signal import Signal, signal_of
from airflow_provider_db2cdc.channels.channel import AIRFLOW_CHANNEL, read_channels
from airflow_provider_db2cdc.channels.notifier import check_notifiers
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
from airflow_provider_db2cdc.offsets.commit import record_signals_in_flight
from airflow_provider_db2cdc.offsets.signal import act_on_offset_signals
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.interval.schedule import interval_of
from airflow_provider_db2cdc.operators.interval.wait import check_event, passing_trigger
from airflow_provider_db2cdc.operators.repair.plan import plan_backfill

if TYPE_CHECKING:
    from airflow_provider_db2cdc.source.planning.plan import IdleTick, TickRun

BACKFILL = "backfill"
CONF_KEY = "signals"


class Db2CdcPlanOperator(BaseOperator):
    """Ask Db2 what is new, and return the tick's plan as JSON.

    If there is nothing to do, the task is skipped, and so are the following ones. It only sends small statements, by
    ibm_db, and reads no rows of tables. Scheduled, manual and asset-triggered runs all take what capture has written up
    to now, whatever their data interval. With `end.at=interval` a scheduled run ends at its data interval instead. The
    task then waits in the triggerer until capture has passed the interval's end. Other runs only carry snapshots.

    A backfill run repairs its data interval, on all tables or on those that its conf or form names in `tables`. It
    moves no offset. The task is skipped if the interval has not begun yet, or if nothing was ever carried.

    The plan has the signals that the run was triggered with (see `signals_of`). A retry plans again.

    :param config: The pipeline's properties, under Debezium's names or in snake_case. (templated)
    :param db2_conn_id: A connection of the IBM Db2 provider.
    :param poll_s: Seconds between two checks whether capture has passed the interval's end.
    """

    template_fields: Sequence[str] = ("config", "db2_conn_id")
    ui_color = "#dcebf7"

    def __init__(
        self,
        *,
        config: PipelineConfig | Mapping[str, Any],
        db2_conn_id: str = Db2CdcHook.default_conn_name,
        poll_s: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.db2_conn_id = db2_conn_id
        self.poll_s = poll_s

    def execute(self, context: Context) -> str:
        """Return the JobSpec as JSON. It holds no secrets and no row values.

        :raises AirflowSkipException: when there is nothing to do.
        :raises AirflowFailException: when a retry cannot succeed.
        :raises SourceError: when Db2 cannot be reached. A retry may succeed.
        """
        run = context["dag_run"]
        with fail_at_once():
            config = read_config(self.config)
            self._warn_of(config)
            if run.run_type == BACKFILL:
                return self._backfill(config, context)
            interval = interval_of(run, config)
            try:
                spec = self._plan(config, run, interval)
            except CaptureBehindError as error:
                assert interval is not None
                self._wait(config, interval, error)
        self.log.info(
            "planned: pipeline=%s tables=%d rows=%d rejected=%d upto=%s",
            spec.pipeline,
            len(spec.tables),
            sum(task.rows for task in spec.tables),
            len(spec.rejected),
            spec.interval_end or spec.capture_position.lsn,
        )
        return spec.to_xcom()

    def _backfill(self, config: PipelineConfig, context: Context) -> str:
        params, timetable = context.get("params") or {}, context["dag"].timetable
        spec = plan_backfill(context["dag_run"], timetable, config, params, self.db2_conn_id)
        self.log.info(
            "planned: backfill pipeline=%s tables=%d rejected=%d", spec.pipeline, len(spec.tables), len(spec.rejected)
        )
        return spec.to_xcom()

    def _warn_of(self, config: PipelineConfig) -> None:
        if config.ignored:
            names = ", ".join(sorted(config.ignored))
            self.log.warning("properties without meaning here: %s (`db2cdc options` says why)", names)
        for warning in config.warnings:
            self.log.warning("%s", warning)

    def resume(self, context: Context, event: Mapping[str, Any]) -> str:
        """Plan once capture has passed the end of the run's interval. See `execute`.

        :raises AirflowException: when the wait ended with an error, for one because capture stands still.
        """
        check_event(event)
        self.log.info("%s", event["message"])
        return self.execute(context)

    def _wait(self, config: PipelineConfig, interval: DataInterval, error: CaptureBehindError) -> NoReturn:
        self.log.info("%s. The task waits in the triggerer", error.problem)
        offsets = VariableOffsetStore(config.pipeline)
        trigger = passing_trigger(self.db2_conn_id, config, offsets, interval, self.poll_s)
        self.defer(trigger=trigger, method_name=self.resume.__name__)

    def _plan(self, config: PipelineConfig, run: Any, interval: DataInterval | None) -> JobSpec:
        # Only a worker needs ibm_db. It is not available on every platform that parses DAGs.
        from airflow_provider_db2cdc.source.planning.plan import IdleTick, TickRun

        run_id, signals = f"{run.dag_id}/{run.run_id}", signals_of(run.conf, run.run_id)
        if signals and AIRFLOW_CHANNEL not in config.signal_channels:
            raise SignalError(
                f"the run carries signals, and {config.pipeline} does not listen to Airflow's",
                f"Add {AIRFLOW_CHANNEL} to signal.enabled.channels.",
            )
        check_notifiers(config)
        offsets, at_ms = VariableOffsetStore(config.pipeline), time.time_ns() // 1_000_000
        pending = [*act_on_offset_signals(signals, offsets), *read_channels(config)]
        planned = planned_tick(config, self.db2_conn_id, TickRun(run_id, at_ms, pending, interval))
        if isinstance(planned, IdleTick):
            raise AirflowSkipException(f"idle: {planned.reason}. Spark is not started")
        return planned


def planned_tick(config: PipelineConfig, db2_conn_id: str, run: TickRun) -> JobSpec | IdleTick:
    """Plan a tick with the offsets in Airflow's Variables. See `plan_or_reason` for the errors.

    It also stores that the plan carries signals.
    """
    from airflow_provider_db2cdc.source.planning.plan import plan_or_reason

    offsets = VariableOffsetStore(config.pipeline)
    with Db2CdcHook(db2_conn_id).source() as source:
        planned = plan_or_reason(source, config, offsets, run)
    if isinstance(planned, JobSpec):
        record_signals_in_flight(planned, offsets)
    return planned


def signals_of(conf: Mapping[str, Any] | None, run_id: str) -> list[Signal]:
    """Return the signals that a run was triggered with, as `{"signals": [{"type": ..., "data": {...}}]}`.

    A signal without an `id` gets the run's id, so that a retry sends the same signal.

    :raises SignalError: when `signals` is not a list of objects.
    """
    items = (conf or {}).get(CONF_KEY) or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise SignalError(
            f"the run's conf has no list of objects in {CONF_KEY!r}", 'Write [{"type": "...", "data": {}}].'
        )
    ids = [run_id] if len(items) == 1 else [f"{run_id}/{number}" for number in range(1, len(items) + 1)]
    return [signal_of(item, AIRFLOW_CHANNEL, id_) for item, id_ in zip(items, ids, strict=True)]


def read_config(config: PipelineConfig | Mapping[str, Any]) -> PipelineConfig:
    """Return the configuration that an operator was given.

    :raises ConfigurationError: when properties are unknown, wrong or contradict each other.
    """
    return config if isinstance(config, PipelineConfig) else PipelineConfig.from_properties(config)
