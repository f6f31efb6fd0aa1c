"""The third task of a tick: it moves the offsets to what is committed in Delta, and emits asset events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, Context, XComArg

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.cdc.repair.report import repair_report
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.channels.channel import acknowledge_channels
from airflow_provider_db2cdc.channels.notifier import AIRFLOW, notify
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.offsets.commit import (
    Announcements,
    OffsetCommitError,
    commit_tick,
    raise_for_failures,
    record_reported,
)
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.asset import (
    newest_announcement,
    notification_asset,
    recent_announcements,
    table_asset,
)
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.plan import read_config
from airflow_provider_db2cdc.operators.repair.commit import log_repair, repair_extras
from airflow_provider_db2cdc.operators.summary import describe_snapshot, describe_table


class Db2CdcCommitOperator(BaseOperator):
    """Move each table's offset to the LSN that is committed in Delta, and emit an asset event for each changed table.

    Tables are only known at run time, so events go through an `AssetAlias` among the outlets
    (`operators.asset.pipeline_alias`). An outlet that is the asset of a table gets the event's extra too. Airflow emits
    only the events of tasks that succeed. Failed tables, and offsets that cannot be stored, are therefore better
    reported by a later task (`Db2CdcOutcomeOperator`). It learns of the offsets from this task's output.

    A retry moves nothing twice. An event has the batches since the last event that Airflow has. So a run that dies
    after its offsets moved leaves no hole. No two events have a batch in common, unless two runs commit at the same
    moment.

    The result of a backfill run moves no offset. Its task returns what was found per table. A table in which something
    was added or corrected gets an event too.

    :param result: The JobResult as JSON, from the apply task. (templated)
    :param config: The pipeline's properties. They are needed if signals come by a file, Kafka or a custom channel,
        because this task reports their outcomes to the channel. (templated)
    :param fail_for_tables: Whether to fail, after everything else, when the result names failed tables or an offset
        cannot be stored.
    """

    template_fields: Sequence[str] = ("result", "config")
    ui_color = "#e3f4e1"

    def __init__(
        self,
        *,
        result: str | XComArg,
        config: PipelineConfig | Mapping[str, Any] | None = None,
        fail_for_tables: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.result = result
        self.config = config
        self.fail_for_tables = fail_for_tables

    def execute(self, context: Context) -> str | dict[str, Any] | None:
        """Commit and announce. Return which offsets could not be stored and why, or None if all were.

        Of a backfill, return what it found per table.

        :raises AirflowFailException: when the summary cannot be read or stored. With `fail_for_tables` also when tables
            failed, or an offset could not be stored.
        """
        with fail_at_once():
            result = JobResult.from_json(str(self.result))
            if result.repair is not None:
                return self._report_repair(result, context)
            unkept = self._commit(result, context)
            if self.fail_for_tables:
                if unkept is not None:
                    raise unkept
                raise_for_failures(result)
        return None if unkept is None else str(unkept)

    def _commit(self, result: JobResult, context: Context) -> OffsetCommitError | None:
        """Move the offsets, report to the channels, and announce. Return which offsets could not be stored."""
        now_ms = time.time_ns() // 1_000_000
        for table in result.tables:
            self.log.info("%s", describe_table(table, now_ms + result.source_ahead_ms))
        offsets = VariableOffsetStore(result.pipeline)
        for signal in offsets.summary().new_failures(result):
            self.log.error("signal %s of channel %s %s: %s", signal.id, signal.channel, signal.status, signal.reason)
        announcements = airflow_announcements(result.pipeline)
        _, unkept = commit_tick(result, offsets, announcements)
        if unkept is not None:
            self.log.error("%s", unkept)
        for snapshot in result.snapshots:
            self.log.info("%s", describe_snapshot(snapshot))
        config, is_notified = None if self.config is None else read_config(self.config), True
        if config is not None:
            acknowledge_channels(config, result.signals)
            # Airflow drops the events of a task that fails.
            fails = self.fail_for_tables and (unkept is not None or bool(result.failed))
            is_notified = notify(config, result.notifications, now_ms, drops_events=fails)
        extras = {table: event_extra(each, result.interval) for table, each in announcements.pending.items()}
        self._announce_tables(result.pipeline, extras, context)
        if config is not None and AIRFLOW in config.notification_channels:
            self._announce_notifications(result, context)
        record_reported(result, offsets, is_notified)
        return unkept

    def _report_repair(self, result: JobResult, context: Context) -> dict[str, Any]:
        """Log and announce what a repair has done, and return what it found."""
        log_repair(result, self.log)
        extras = repair_extras(result, VariableOffsetStore(result.pipeline).read())
        self._announce_tables(result.pipeline, extras, context)
        if self.fail_for_tables:
            raise_for_failures(result)
        return repair_report(result)

    def _announce_tables(self, pipeline: str, extras: Mapping[TableId, Mapping[str, Any]], context: Context) -> None:
        events: Any = context["outlet_events"]
        declared = {outlet.uri: outlet for outlet in self.outlets if isinstance(outlet, Asset)}
        for table, extra in extras.items():
            asset = table_asset(pipeline, table)
            if asset.uri in declared:
                events[declared[asset.uri]].extra = extra
                continue
            for alias in self._aliases:
                events[alias].add(asset, extra=extra)

    def _announce_notifications(self, result: JobResult, context: Context) -> None:
        events: Any = context["outlet_events"]
        notifications = to_data(result.notifications)
        for alias in self._aliases if notifications else ():
            events[alias].add(notification_asset(result.pipeline), extra={"notifications": notifications})

    @property
    def _aliases(self) -> list[AssetAlias]:
        return [outlet for outlet in self.outlets if isinstance(outlet, AssetAlias)]


def event_extra(announcement: Announcement, interval: DataInterval | None) -> dict[str, str | int | None]:
    """Return the extra of a table's asset event: its range of batches and LSNs, events and newest commit time.

    If the run ended at its data interval, the extra has that too, as ISO texts in UTC.
    """
    named = {} if interval is None else {"interval_start": interval.start or None, "interval_end": interval.end}
    return {**named, **announcement.extra}


def airflow_announcements(pipeline: str) -> Announcements:
    """Return the asset events of one commit, which asks Airflow for the newest ones."""
    return Announcements(partial(newest_announcement, pipeline), partial(recent_announcements, pipeline))
