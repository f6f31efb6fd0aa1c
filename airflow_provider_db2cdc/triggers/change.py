"""The trigger that waits for the source without occupying a worker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import airflow
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import Connection
from airflow.triggers.base import BaseTrigger, TriggerEvent
from packaging.version import Version

from airflow_provider_db2cdc.cdc.capture.interval import CapturedTime
from airflow_provider_db2cdc.cdc.capture.source_clock import SourceClock
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.offset.request import Requests
from airflow_provider_db2cdc.cdc.offset.store import RequestStore
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.channels.channel import read_channels
from airflow_provider_db2cdc.channels.kafka import NAME as KAFKA
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError
from airflow_provider_db2cdc.hooks.db2cdc import missing_connection, read_address
from airflow_provider_db2cdc.offsets.keyed import Document, KeyedOffsetStore, MemoryTexts
from airflow_provider_db2cdc.sql.driver_error import UnreachableError

if TYPE_CHECKING:
    from airflow_provider_db2cdc.source.connection import Source

log = logging.getLogger(__name__)

RUN_ID = "sensor"

SHOWS_ARGUMENTS = Version(airflow.__version__).release < (3, 3)
"""Whether Airflow's API shows the decrypted arguments of a deferred task's trigger. Since 3.3 it does not."""


@dataclass
class WorkProbe:
    """A check for what is awaited: work for a tick of the pipeline, or that capture has passed a time.

    `clock` is the source's clock as the last check found it.
    """

    config: PipelineConfig
    upto_time: datetime | None = None
    clock: SourceClock | None = None

    def look(self, source: Source, offsets: RequestStore) -> str | None:
        """Return a message on what has come, or None if it has not.

        :raises Db2CdcError: when plan_tick raises it, for one because capture stands still.
        """
        from airflow_provider_db2cdc.source.planning.plan import TickRun, plan_tick

        if self.upto_time is not None:
            return self._look_at_capture(source, offsets, self.upto_time)
        run = TickRun(RUN_ID, time.time_ns() // 1_000_000, self._signals())
        spec = plan_tick(source, self.config, offsets, run)
        if spec is None:
            return None
        return describe_wait(spec)

    def _look_at_capture(self, source: Source, offsets: RequestStore, upto: datetime) -> str | None:
        from airflow_provider_db2cdc.source.catalog import read_capture_position
        from airflow_provider_db2cdc.source.planning.plan import check_moving
        from airflow_provider_db2cdc.source.source_clock import read_source_clock

        config, known = self.config, self.clock or offsets.summary().source_clock
        position = read_capture_position(source, config.asn_schema)
        self.clock = read_source_clock(source, config.asn_schema, config.time_zone, position, known)
        if passed(CapturedTime(position, self.clock), upto):
            return f"capture has passed {upto}: it stands at {position.synchtime} (the source's local time)"
        check_moving(position, config)
        return None

    def _signals(self) -> list[Signal]:
        """Return the signals of all channels.

        A channel that cannot be opened is skipped. The triggerer may lack the module of a custom one.
        """
        signals: list[Signal] = []
        for name in self.config.signal_channels:
            try:
                signals += read_channels(self.config, name)
            except ConfigurationError as error:
                log.warning("signals by channel %s are not waited for here: %s", name, error)
        return signals


def describe_wait(spec: JobSpec) -> str:
    """Return a message on the work that a tick has."""
    rows = sum(task.rows for task in spec.tables)
    begin = sum(task.stored_lsn is None and task.action != "restore" for task in spec.tables)
    parts = [f"{rows} changes", *([f"{begin} tables to begin with"] if begin else [])]
    parts += [f"{len(spec.signals)} signals"] if spec.signals else []
    return f"{', '.join(parts)} are waiting; capture stands at {spec.capture_position.lsn}"


def passed(captured: CapturedTime, upto: datetime) -> bool:
    """Return whether all commits up to a time are captured. A time without a zone is the source's local time."""
    if upto.tzinfo is None:
        return datetime.fromisoformat(captured.position.synchtime) >= upto
    return captured.has_passed(upto.astimezone(UTC).replace(tzinfo=None))


def redact(config: PipelineConfig) -> dict[str, Any]:
    """Return a configuration as an argument of a trigger, without the database's address and without Spark's settings.

    The settings of Kafka's consumer hold its login. They are removed too if Airflow's API shows the arguments to every
    reader of task instances.
    """
    if SHOWS_ARGUMENTS:
        if KAFKA in config.signal_channels:
            log.info("signals by Kafka are not waited for: this Airflow shows a trigger's arguments, its login too")
        channels = tuple(name for name in config.signal_channels if name != KAFKA)
        config = config.model_copy(update={"signal_channels": channels, "kafka_consumer": {}})
    return config.model_dump(mode="json", exclude={"database", "spark"})


class FrozenOffsets:
    """The offsets as they were read once, for a sensor or a trigger. It is a `RequestStore` in memory.

    If registrations were found inactive, it also stores that in another store, if it has one. `inactive` names their
    tables. What a plan without work records is kept nowhere. The plan of the next tick records it.
    """

    where = "the sensor's memory"

    def __init__(self, texts: Mapping[Document, str | None], store: RequestStore | None = None) -> None:
        self._frozen = KeyedOffsetStore(MemoryTexts(texts, self.where))
        self._store = store
        self._first = self.read().requests

    @property
    def texts(self) -> dict[Document, str | None]:
        """The documents, as arguments of a trigger."""
        return self._frozen.read_texts()

    @property
    def inactive(self) -> list[TableId]:
        """The tables whose registration was found inactive."""
        now = self.read().requests
        return [
            table
            for table in now.tables
            if now.entry(table).capture_interrupted not in ("", self._first.entry(table).capture_interrupted)
        ]

    def read(self) -> PipelineOffsets:
        """Return the offsets as they were read, with what was found out since."""
        return self._frozen.read()

    def summary(self) -> PipelineSummary:
        """Return the summary as it was read."""
        return self._frozen.summary()

    def put_requests(self, change: Callable[[PipelineOffsets], Requests]) -> PipelineOffsets:
        """Keep what was found out about tables."""

        def of_tables(seen: PipelineOffsets) -> Requests:
            return replace(change(seen), plan=seen.requests.plan)

        if self._store is not None:
            self._store.put_requests(of_tables)
        return self._frozen.put_requests(of_tables)


class Db2CdcChangeTrigger(BaseTrigger):
    """Check the source every `poll_s` seconds, over one connection, in a separate thread.

    The event is {"status": "come" | "timeout" | "failed", "message": ..., "error": ..., "inactive": ...}. `error` is
    the class of the error. `inactive` names the tables whose registration was found inactive. While the
    source cannot be reached, the wait continues. Every other error ends it.

    :param db2_conn_id: A connection of the IBM Db2 provider.
    :param config: The pipeline's configuration, as `redact` returns it.
    :param offsets: The texts of the offsets' documents, as the sensor saw them.
    :param upto_time: ISO text of a time that capture is to pass. None waits for changes.
    :param poll_s: Seconds between two checks.
    :param deadline: The end of the wait, in seconds since the epoch. None waits without an end.
    """

    def __init__(  # noqa: PLR0913 - Airflow creates a trigger from one argument for each value.
        self,
        db2_conn_id: str,
        config: dict[str, Any],
        offsets: dict[Document, str | None],
        upto_time: str | None,
        poll_s: float,
        deadline: float | None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.db2_conn_id = db2_conn_id
        self.config = config
        self.offsets = offsets
        self.upto_time = upto_time
        self.poll_s = poll_s
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class and arguments. None of them is secret."""
        names = ("db2_conn_id", "config", "offsets", "upto_time", "poll_s", "deadline")
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        offsets = FrozenOffsets(self.offsets)
        try:
            source = await self._source()
            try:
                payload = await self._wait(source, offsets)
            finally:
                await asyncio.to_thread(source.close)
        except Db2CdcError as error:
            payload = {"status": "failed", "message": str(error), "error": type(error).__name__}
        inactive = [name_of(table) for table in offsets.inactive]
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
                if message := await asyncio.to_thread(awaited.look, source, offsets):
                    return {"status": "come", "message": message}
            except UnreachableError as error:
                last = str(error)
                log.warning("not yet: %s", last)
            if self.deadline is not None and time.time() + self.poll_s > self.deadline:
                return {"status": "timeout", "message": last}
            await asyncio.sleep(self.poll_s)
