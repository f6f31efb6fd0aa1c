"""The sensor that waits for changes, or until capture has passed a time."""

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
    AirflowTaskTimeout,
)
from airflow.sdk import BaseSensorOperator, Context

from airflow_provider_db2cdc.cdc.offset.offset import new_revision
from airflow_provider_db2cdc.cdc.offset.request_change import capture_interrupted
from airflow_provider_db2cdc.cdc.offset.store import RequestStore
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.failure import LASTING_NAMES, fail_at_once
from airflow_provider_db2cdc.operators.plan import read_config, signals_of
from airflow_provider_db2cdc.sql.driver_error import UnreachableError
from airflow_provider_db2cdc.triggers.change import Db2CdcChangeTrigger, FrozenOffsets, WorkProbe, redact

TIMEOUTS = (AirflowSensorTimeout, AirflowTaskTimeout)


class Db2CdcChangeSensor(BaseSensorOperator):
    """Wait until a tick of the pipeline would have work or, with `upto_time`, until capture has passed that time.

    Work is changes, new tables, signals, and offsets that have stood still for `offsets.max.age.s`. The tick that moves
    such offsets must not wait for a change that does not come. To wait for some tables only, set `table.include.list`.
    A deferred sensor uses the offsets that it saw first. It moves no offset, but stores that a registration was
    inactive.

    With `soft_fail` the task is skipped if nothing has come before the timeout. An error fails the task nevertheless:
    if it lasted, each run would be skipped, and no task would report it.

    :param config: The pipeline's properties, as for the plan task. (templated)
    :param db2_conn_id: A connection of the IBM Db2 provider. (templated)
    :param upto_time: A time that capture is to pass, as a datetime or ISO text such as
        ``{{ data_interval_end }}``. Without a zone it is the source's local time. (templated)
    :param deferrable: Whether to wait in the triggerer, which occupies no worker. Before 3.3, Airflow's API shows the
        arguments of a trigger. There the trigger gets no login for Kafka, and does not wait for signals by Kafka.
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
        """Check once, then wait in the triggerer or in this task."""
        if self._has_signals(context):
            return
        if not self.deferrable:
            with self._failing_for_errors():
                super().execute(context)
            return
        with self._failing_as_sensors_do():
            offsets, config, upto = self._first_look(), read_config(self.config), self._upto()
        if offsets is None:
            return
        self.defer(
            trigger=Db2CdcChangeTrigger(
                db2_conn_id=self.db2_conn_id,
                config=redact(config),
                offsets=offsets.texts,
                upto_time=upto.isoformat() if upto else None,
                poll_s=self.poke_interval,
                deadline=time.time() + self.timeout,
            ),
            # The trigger's own deadline comes earlier. Its message says what was waited for.
            timeout=timedelta(seconds=self.timeout + 2 * self.poke_interval + 60),
            method_name=self.resume.__name__,
        )

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after the trigger's event. See `resume` for the errors."""
        with self._failing_for_errors():
            return super().resume_execution(next_method, next_kwargs, context)

    def poke(self, context: Context) -> bool:
        """Check once. If the source cannot be reached, the wait continues."""
        with fail_at_once():
            try:
                return self._look(VariableOffsetStore(read_config(self.config).pipeline))
            except UnreachableError as error:
                self.log.warning("not yet: %s", error)
                return False

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """End the wait as the trigger's event says, and store which registrations it has found inactive.

        :raises AirflowSensorTimeout: when the timeout has passed.
        :raises AirflowFailException: when the wait ended with an error that a retry cannot mend.
        :raises AirflowException: when the wait ended with another error.
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

    def _keep_inactive(self, names: Sequence[str]) -> None:
        # A restored source is not stored here, because the next plan detects it too.
        tables = [parse_table(name, "the trigger's event") for name in names]
        if not tables:
            return
        try:
            store = VariableOffsetStore(read_config(self.config).pipeline)
            store.put_requests(capture_interrupted(tables, new_revision()))
        except OffsetError as error:
            self.log.warning("not kept that registrations were not active: tables=%s error=%s", names, error)

    @contextmanager
    def _failing_as_sensors_do(self) -> Iterator[None]:
        """Skip instead of failing if `never_fail` says so, as the base class does."""
        try:
            with fail_at_once():
                yield
        except Exception as error:
            if self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise

    @contextmanager
    def _failing_for_errors(self) -> Iterator[None]:
        """Raise the error that the base class turns into a skip because of `soft_fail`, except a timeout."""
        try:
            yield
        except AirflowSkipException as skip:
            error = skip.__cause__
            if not self.soft_fail or error is None or isinstance(error, TIMEOUTS):
                raise
            raise error from None

    def _first_look(self) -> FrozenOffsets | None:
        """Check once. Return the offsets that were seen, or None if the awaited work has come."""
        store = VariableOffsetStore(read_config(self.config).pipeline)
        offsets = FrozenOffsets(store.read_texts(), store)
        try:
            return None if self._look(offsets) else offsets
        except UnreachableError as error:
            self.log.warning("not yet: %s", error)
        return offsets

    def _look(self, offsets: RequestStore) -> bool:
        awaited = WorkProbe(read_config(self.config), self._upto())
        with Db2CdcHook(self.db2_conn_id).source() as source:
            message = awaited.look(source, offsets)
        if message:
            self.log.info("%s", message)
        return message is not None

    def _has_signals(self, context: Context) -> bool:
        """Whether the run was triggered with signals, which are work whatever the source has."""
        run: Any = context.get("dag_run")
        if self.upto_time is not None or run is None:
            return False
        with fail_at_once():
            signals = signals_of(run.conf, run.run_id)
        if signals:
            self.log.info("the run was triggered with %d signals", len(signals))
        return bool(signals)

    def _upto(self) -> datetime | None:
        if self.upto_time is None or isinstance(self.upto_time, datetime):
            return self.upto_time
        try:
            return datetime.fromisoformat(self.upto_time)
        except ValueError as error:
            raise ConfigurationError(
                f"upto_time is {self.upto_time!r}", "Give an ISO time; a run without a data interval has none."
            ) from error
