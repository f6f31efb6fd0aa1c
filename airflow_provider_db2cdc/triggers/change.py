"""Waiting for the source without holding a worker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import airflow
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import Connection
from airflow.triggers.base import BaseTrigger, TriggerEvent
from packaging.version import Version

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.offset.offset import Offset, OffsetStore
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.channels.channel import read_channels
from airflow_provider_db2cdc.channels.kafka import NAME as KAFKA
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError
from airflow_provider_db2cdc.hooks.db2cdc import missing_connection, read_address
from airflow_provider_db2cdc.sql.driver_error import UnreachableError

if TYPE_CHECKING:
    from airflow_provider_db2cdc.source.connection import Source

log = logging.getLogger(__name__)

RUN_ID = "sensor"

SHOWS_ARGUMENTS = Version(airflow.__version__).release < (3, 3)
"""Whether Airflow's API tells a deferred task's trigger with its arguments, decrypted (since 3.3 it does not)."""


@dataclass(frozen=True)
class WorkProbe:
    """What is waited for: work for a tick of the pipeline, or that capture has passed a time."""

    config: PipelineConfig
    upto_time: datetime | None = None

    def look(self, source: Source, offsets: OffsetStore) -> str | None:
        """Return what has come, None while it has not.

        :raises Db2CdcError: what plan_tick raises, capture's standing still too.
        """
        from airflow_provider_db2cdc.source.catalog import read_capture_position
        from airflow_provider_db2cdc.source.planning.plan import check_moving, plan_tick

        if self.upto_time is not None:
            fence = read_capture_position(source, self.config.asn_schema)
            if passed(fence, self.upto_time, datetime.now(UTC)):
                return f"capture has passed {self.upto_time}: it stands at {fence.synchtime} (the source's local time)"
            check_moving(fence, self.config)
            return None
        spec = plan_tick(source, self.config, offsets, RUN_ID, time.time_ns() // 1_000_000, self._signals())
        if spec is None:
            return None
        return describe_wait(spec)

    def _signals(self) -> list[Signal]:
        """Return what channels hold; a triggerer may lack the module of one that the pipeline's workers have."""
        signals: list[Signal] = []
        for name in self.config.signal_channels:
            try:
                signals += read_channels(self.config, name)
            except ConfigurationError as error:
                log.warning("signals by channel %s are not waited for here: %s", name, error)
        return signals


def describe_wait(spec: JobSpec) -> str:
    """Return what there is for a tick to do."""
    rows = sum(task.rows for task in spec.tables)
    begin = sum(task.stored_lsn is None for task in spec.tables)
    parts = [f"{rows} changes", *([f"{begin} tables to begin with"] if begin else [])]
    parts += [f"{len(spec.signals)} signals"] if spec.signals else []
    return f"{', '.join(parts)} are waiting; capture stands at {spec.capture_position.lsn}"


def passed(fence: CapturePosition, upto: datetime, now: datetime) -> bool:
    """Return whether all commits up to a time are captured.

    A time with a zone is compared with the worker's clock less the age of capture's position; one without is the
    source's local time.
    """
    if upto.tzinfo is None:
        return datetime.fromisoformat(fence.synchtime) >= upto
    return now - timedelta(seconds=fence.age_s) >= upto


def redact(config: PipelineConfig) -> dict[str, Any]:
    """Return what a trigger is told of a configuration: not the database's address, nor what is Spark's.

    Nor what Kafka's consumer logs in with, where Airflow's API shows it to whoever may read task instances.
    """
    if SHOWS_ARGUMENTS:
        if KAFKA in config.signal_channels:
            log.info("signals by Kafka are not waited for: this Airflow shows a trigger's arguments, its login too")
        others = tuple(name for name in config.signal_channels if name != KAFKA)
        config = config.model_copy(update={"signal_channels": others, "kafka_consumer": {}})
    return config.model_dump(mode="json", exclude={"database", "spark"})


SUMMARY = ""
"""Where among the documents the summary is: no table has an empty name."""


class FrozenOffsets:
    """Offsets as a first look found them; an OffsetStore that asks another one once a table.

    It moves none. That a registration was found inactive it hands on to that one, or remembers where there is none.
    """

    def __init__(self, store: OffsetStore | None = None, seen: Mapping[str, str | None] | None = None) -> None:
        self._store = store
        self._seen = dict(seen or {})
        self.inactive: dict[TableId, Offset] = {}

    @property
    def seen(self) -> Mapping[str, str | None]:
        """The documents by table, as a trigger can be told them."""
        return dict(self._seen)

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset as it was first seen."""
        name = name_of(table)
        if name not in self._seen:
            offset = self._store.get(table) if self._store else None
            self._seen[name] = offset.to_json() if offset else None
        text = self._seen[name]
        return Offset.from_json(text, f"the sensor's memory of {table}") if text else None

    def summary(self) -> PipelineSummary:
        """Return the summary as it was first seen."""
        if SUMMARY not in self._seen:
            self._seen[SUMMARY] = self._store.summary().to_json() if self._store else None
        text = self._seen[SUMMARY]
        return PipelineSummary.from_json(text, "the sensor's memory") if text else PipelineSummary()

    def put_summary(self, summary: PipelineSummary) -> None:
        """Refuse: waiting does nothing."""
        raise NotImplementedError("a sensor does no snapshots")

    def put(self, offset: Offset) -> None:
        """Keep that a table's registration was found inactive."""
        if self._store is None:
            self.inactive[offset.table] = offset
        else:
            self._store.put(offset)


class Db2CdcChangeTrigger(BaseTrigger):
    """Look at the source every `poll_s` seconds, over one connection, in a thread of its own.

    The event is {"status": "come" | "timeout" | "failed", "message": ..., "error": the error's class, "inactive": the
    offsets of tables whose registration was found inactive}. A source out of reach is waited for like a change; every
    other error ends the wait.

    :param db2_conn_id: A connection of the IBM Db2 provider.
    :param config: What `redact` says of the pipeline's configuration.
    :param offsets: The offsets' documents by table, as the sensor saw them.
    :param upto_time: ISO text of a time that capture is to pass; None waits for changes.
    :param deadline: Seconds since the epoch after which the wait is over.
    """

    def __init__(
        self,
        db2_conn_id: str,
        config: dict[str, Any],
        offsets: dict[str, str | None],
        upto_time: str | None,
        poll_s: float,
        deadline: float,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.db2_conn_id = db2_conn_id
        self.config = config
        self.offsets = offsets
        self.upto_time = upto_time
        self.poll_s = poll_s
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class and arguments, none of them secret."""
        names = ("db2_conn_id", "config", "offsets", "upto_time", "poll_s", "deadline")
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield the one event."""
        offsets = FrozenOffsets(seen=self.offsets)
        try:
            source = await self._source()
            try:
                payload = await self._wait(source, offsets)
            finally:
                await asyncio.to_thread(source.close)
        except Db2CdcError as error:
            payload = {"status": "failed", "message": str(error), "error": type(error).__name__}
        inactive = [offset.to_json() for offset in offsets.inactive.values()]
        yield TriggerEvent({**payload, "inactive": inactive})  # type: ignore[no-untyped-call]

    async def _source(self) -> Source:
        from airflow_provider_db2cdc.source.connection import Source

        try:
            connection = await Connection.async_get(self.db2_conn_id)
        except AirflowNotFoundException as error:
            raise missing_connection(self.db2_conn_id) from error
        return Source(read_address(connection))

    async def _wait(self, source: Source, offsets: FrozenOffsets) -> dict[str, str]:
        upto = datetime.fromisoformat(self.upto_time) if self.upto_time else None
        awaited = WorkProbe(PipelineConfig.model_validate(self.config), upto)
        last = "it has not come"
        while True:
            try:
                if found := await asyncio.to_thread(awaited.look, source, offsets):
                    return {"status": "come", "message": found}
            except UnreachableError as error:
                last = str(error)
                log.warning("not yet: %s", last)
            if time.time() + self.poll_s > self.deadline:
                return {"status": "timeout", "message": last}
            await asyncio.sleep(self.poll_s)
