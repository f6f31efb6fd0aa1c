"""The first task of a tick: what is to be done, decided once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import BaseOperator, Context

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.signal.signal import Signal, signal_of
from airflow_provider_db2cdc.channels.channel import AIRFLOW_CHANNEL, read_channels
from airflow_provider_db2cdc.channels.notifier import check_notifiers
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
from airflow_provider_db2cdc.offsets.commit import record_signals_in_flight
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.failure import fail_at_once

BACKFILL = "backfill"
CONF_KEY = "signals"


class Db2CdcPlanOperator(BaseOperator):
    """Ask Db2 what is new and return the tick's plan as JSON; skip when there is nothing, so that the rest is too.

    Only small statements are sent, by ibm_db; no rows pass through here. Scheduled, manual and asset-triggered runs
    all take what capture has written up to now, whatever their interval. A run that was triggered with signals (see
    `signals_of`) hands them on. A retry plans anew.

    :param config: The pipeline's properties, under Debezium's names or in snake_case. (templated)
    :param db2_conn_id: A connection of the IBM Db2 provider.
    """

    template_fields: Sequence[str] = ("config", "db2_conn_id")
    ui_color = "#dcebf7"

    def __init__(
        self,
        *,
        config: PipelineConfig | Mapping[str, Any],
        db2_conn_id: str = Db2CdcHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.db2_conn_id = db2_conn_id

    def execute(self, context: Context) -> str:
        """Return the JobSpec as JSON; it holds no secrets and no row values.

        :raises AirflowSkipException: there is nothing to do.
        :raises AirflowFailException: a retry cannot help.
        :raises SourceError: Db2 cannot be reached; a retry may.
        """
        run = context["dag_run"]
        if run.run_type == BACKFILL:
            raise AirflowFailException(
                "a backfill run moves no offset and writes nothing yet: old intervals cannot be read anew once the "
                "change tables are pruned. To catch up, trigger plain runs: they take everything since the offsets. "
                'To have a table snapshotted anew, set "restart": true in its Airflow Variable (or run '
                "`db2cdc offset restart --airflow <table>`), and trigger a plain run."
            )
        with fail_at_once():
            spec = self._plan(f"{run.dag_id}/{run.run_id}", signals_of(run.conf, run.run_id))
        if spec is None:
            raise AirflowSkipException("idle: nothing new up to the fence, Spark is not started")
        self.log.info(
            "planned: pipeline=%s tables=%d rows=%d refused=%d upto=%s",
            spec.pipeline,
            len(spec.tables),
            sum(task.rows for task in spec.tables),
            len(spec.rejected),
            spec.capture_position.lsn,
        )
        return spec.to_json()

    def _plan(self, run_id: str, signals: Sequence[Signal]) -> JobSpec | None:
        # The driver is only needed here, and is not to be had on every platform that parses DAGs.
        from airflow_provider_db2cdc.source.planning.plan import plan_tick

        config = read_config(self.config)
        if config.ignored:
            names = ", ".join(sorted(config.ignored))
            self.log.warning("properties without meaning here: %s (`db2cdc options` says why)", names)
        for warning in config.warnings:
            self.log.warning("%s", warning)
        if signals and AIRFLOW_CHANNEL not in config.signal_channels:
            raise SignalError(
                f"the run carries signals, and {config.pipeline} does not listen to Airflow's",
                f"Add {AIRFLOW_CHANNEL} to signal.enabled.channels.",
            )
        check_notifiers(config)
        asked = [*signals, *read_channels(config)]
        offsets = VariableOffsetStore(config.pipeline)
        with Db2CdcHook(self.db2_conn_id).source() as source:
            spec = plan_tick(source, config, offsets, run_id, time.time_ns() // 1_000_000, asked)
        record_signals_in_flight(spec, offsets)
        return spec


def signals_of(conf: Mapping[str, Any] | None, run_id: str) -> list[Signal]:
    """Return the signals that a run was triggered with, as `{"signals": [{"type": ..., "data": {...}}]}`.

    One without an `id` gets the run's, so that a retry does not ask twice.

    :raises SignalError: that is not what is there.
    """
    items = (conf or {}).get(CONF_KEY) or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise SignalError(
            f"the run's conf has no list of objects in {CONF_KEY!r}", 'Write [{"type": "...", "data": {}}].'
        )
    ids = [run_id] if len(items) == 1 else [f"{run_id}/{at}" for at in range(1, len(items) + 1)]
    return [signal_of(item, AIRFLOW_CHANNEL, id_) for item, id_ in zip(items, ids, strict=True)]


def read_config(config: PipelineConfig | Mapping[str, Any]) -> PipelineConfig:
    """Return the configuration that an operator was given.

    :raises ConfigurationError: properties that cannot be meant as they stand.
    """
    return config if isinstance(config, PipelineConfig) else PipelineConfig.from_properties(config)
