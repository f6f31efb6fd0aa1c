"""Waiting for changes, or for capture to pass a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
)
from airflow.sdk import BaseSensorOperator, Context

from airflow_provider_db2cdc.cdc.offset.offset import Offset, record_capture_interrupted
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.failure import LASTING_NAMES, fail_at_once
from airflow_provider_db2cdc.operators.plan import read_config, signals_of
from airflow_provider_db2cdc.sql.driver_error import UnreachableError
from airflow_provider_db2cdc.triggers.change import Db2CdcChangeTrigger, FrozenOffsets, WorkProbe, redact


class Db2CdcChangeSensor(BaseSensorOperator):
    """Wait until a tick of the pipeline would have work; or, with `upto_time`, until capture has passed that time.

    Work is changes, tables to begin with, signals, and offsets that have stood still for `offsets.max.age.s`: the tick
    that moves them must not wait for a change that does not come. Narrow the tables with `table.include.list`. While
    deferred the offsets are taken as the sensor first saw them. It moves none; that a registration was found inactive
    is kept in them.

    :param config: The pipeline's properties, as for the plan task. (templated)
    :param db2_conn_id: A connection of the IBM Db2 provider. (templated)
    :param upto_time: A time that capture is to pass, as a datetime or ISO text such as
        ``{{ data_interval_end }}``; without a zone it is the source's local time. (templated)
    :param deferrable: Whether to wait in the triggerer, which holds no worker. Before Airflow 3.3, whose API shows a
        trigger's arguments, it is not told how to log in to Kafka, so signals by Kafka are not waited for there.
    """

    template_fields: Sequence[str] = ("config", "db2_conn_id", "upto_time")
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        config: PipelineConfig | Mapping[str, Any],
        db2_conn_id: str = Db2CdcHook.default_conn_name,
        upto_time: datetime | str | None = None,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.db2_conn_id = db2_conn_id
        self.upto_time = upto_time
        self.deferrable = deferrable

    def execute(self, context: Context) -> None:
        """Look once, then wait in the triggerer, or here."""
        if self._is_asked(context):
            return
        if not self.deferrable:
            super().execute(context)
            return
        with self._failing_as_sensors_do():
            offsets, config, upto = self._seen(), read_config(self.config), self._upto()
        if offsets is None:
            return
        self.defer(
            trigger=Db2CdcChangeTrigger(
                db2_conn_id=self.db2_conn_id,
                config=redact(config),
                offsets=dict(offsets.seen),
                upto_time=upto.isoformat() if upto else None,
                poll_s=self.poke_interval,
                deadline=time.time() + self.timeout,
            ),
            # The trigger's own deadline comes first, and can say what was waited for.
            timeout=timedelta(seconds=self.timeout + 2 * self.poke_interval + 60),
            method_name=self.resume.__name__,
        )

    def poke(self, context: Context) -> bool:
        """Look once; a source out of reach is waited for."""
        with fail_at_once():
            try:
                return self._look(VariableOffsetStore(read_config(self.config).pipeline))
            except UnreachableError as error:
                self.log.warning("not yet: %s", error)
                return False

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """End the wait as the trigger's event says, and keep which registrations it has found inactive.

        :raises AirflowSensorTimeout: the time is over.
        :raises AirflowException: the source cannot be waited for.
        """
        message = event["message"]
        self._keep_inactive(event.get("inactive", ()))
        match event["status"]:
            case "come":
                self.log.info("%s", message)
            case "timeout":
                raise AirflowSensorTimeout(f"waited {self.timeout:g} s: {message}")
            case _ if event.get("error") in LASTING_NAMES:
                raise AirflowFailException(message)
            case _:
                raise AirflowException(message)

    def _keep_inactive(self, documents: Sequence[str]) -> None:
        store = VariableOffsetStore(read_config(self.config).pipeline)
        found_inactive = (Offset.from_json(text, "the trigger's event") for text in documents)
        # That a source was restored the plan finds by itself, which comes next.
        for found in (one for one in found_inactive if one.capture_interrupted):
            try:
                record_capture_interrupted(store, found.table, found.lsn)
            except OffsetError as error:
                self.log.warning("not kept that the registration of %s was not active: %s", found.table, error)

    @contextmanager
    def _failing_as_sensors_do(self) -> Iterator[None]:
        """Skip instead of failing where `soft_fail` or `never_fail` ask so, as the base class does."""
        try:
            with fail_at_once():
                yield
        except Exception as error:
            if self.never_fail or (self.soft_fail and isinstance(error, AirflowFailException)):
                raise AirflowSkipException(str(error)) from error
            raise

    def _seen(self) -> FrozenOffsets | None:
        """Look once and return the offsets as they were seen; None where what is waited for has come."""
        offsets = FrozenOffsets(VariableOffsetStore(read_config(self.config).pipeline))
        try:
            return None if self._look(offsets) else offsets
        except UnreachableError as error:
            self.log.warning("not yet: %s", error)
        # To the trigger, which asks for no Variable, a table that was not seen is one to begin with.
        for table in offsets.summary().tables:
            offsets.get(table)
        return offsets

    def _look(self, offsets: FrozenOffsets | VariableOffsetStore) -> bool:
        awaited = WorkProbe(read_config(self.config), self._upto())
        with Db2CdcHook(self.db2_conn_id).source() as source:
            found = awaited.look(source, offsets)
        if found:
            self.log.info("%s", found)
        return found is not None

    def _is_asked(self, context: Context) -> bool:
        """Whether the run itself was triggered with signals, which are work whatever the source does."""
        run: Any = context.get("dag_run")
        if self.upto_time is not None or run is None:
            return False
        with fail_at_once():
            asked = signals_of(run.conf, run.run_id)
        if asked:
            self.log.info("the run was triggered with %d signals", len(asked))
        return bool(asked)

    def _upto(self) -> datetime | None:
        if self.upto_time is None or isinstance(self.upto_time, datetime):
            return self.upto_time
        try:
            return datetime.fromisoformat(self.upto_time)
        except ValueError as error:
            raise ConfigurationError(
                f"upto_time is {self.upto_time!r}", "Give an ISO time; a run without a data interval has none."
            ) from error
