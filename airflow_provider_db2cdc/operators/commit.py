"""The third task of a tick: what Delta proved becomes the offsets, and other DAGs hear of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, Context, XComArg

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.channels.channel import acknowledge_channels
from airflow_provider_db2cdc.channels.notifier import AIRFLOW, notify
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.offsets.commit import commit_tick, raise_for_failures, record_reported
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.asset import notification_asset, table_asset
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.plan import read_config
from airflow_provider_db2cdc.operators.summary import count_changes, describe_snapshot, describe_table


class Db2CdcCommitOperator(BaseOperator):
    """Move each table's offset to where Delta proved it, and emit an asset event for each table that changed.

    Events come through an `AssetAlias` among the outlets (`operators.asset.pipeline_alias`), for tables are known at
    run time only; an outlet that is a table's own asset gets the event's extra too. Airflow emits the events of tasks
    that succeed, so failed tables, and offsets that cannot be kept, are better reported by a task behind this one
    (`Db2CdcOutcomeOperator`): the output tells it of the offsets.

    A retry moves nothing twice.

    :param result: The JobResult as JSON, from the apply task. (templated)
    :param config: The pipeline's properties; needed where signals come by a file, Kafka or a channel of one's own,
        which are told here what became of them. (templated)
    :param fail_for_tables: Whether to fail, after everything else, when the result names failed tables or an offset
        cannot be kept.
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

    def execute(self, context: Context) -> str | None:
        """Commit and announce; return which offsets could not be kept and why, None where all were.

        :raises AirflowFailException: with `fail_for_tables`, tables failed or there are such offsets; always where the
            summary cannot be read or kept.
        """
        with fail_at_once():
            result = JobResult.from_json(str(self.result))
            now_ms = time.time_ns() // 1_000_000
            for table in result.tables:
                self.log.info("%s", describe_table(table, now_ms + result.source_ahead_ms))
            offsets = VariableOffsetStore(result.pipeline)
            for one in offsets.summary().new_failures(result):
                self.log.error("signal %s of channel %s %s: %s", one.id, one.channel, one.status, one.reason)
            _, unkept = commit_tick(result, offsets)
            if unkept is not None:
                self.log.error("%s", unkept)
            for snapshot in result.snapshots:
                self.log.info("%s", describe_snapshot(snapshot))
            config, is_told = None if self.config is None else read_config(self.config), True
            if config is not None:
                acknowledge_channels(config, result.signals)
                # Airflow drops the events of a task that fails.
                fails = self.fail_for_tables and (unkept is not None or bool(result.failed))
                is_told = notify(config, result.notifications, now_ms, drops_events=fails)
            # A table's changes are told once its offset moves, by whichever tick moves it.
            kept = [table for table in result.tables if unkept is None or name_of(table.table) not in unkept.tables]
            self._announce_tables(result.pipeline, kept, context)
            if config is not None and AIRFLOW in config.notification_channels:
                self._announce_notifications(result, context)
            record_reported(result, offsets, is_told)
            if self.fail_for_tables:
                if unkept is not None:
                    raise unkept
                raise_for_failures(result)
        return None if unkept is None else str(unkept)

    def _announce_tables(self, pipeline: str, tables: Sequence[TableResult], context: Context) -> None:
        events: Any = context["outlet_events"]
        declared = {outlet.uri: outlet for outlet in self.outlets if isinstance(outlet, Asset)}
        for table in tables:
            if not count_changes(table):
                continue
            asset = table_asset(pipeline, table.table)
            if asset.uri in declared:
                events[declared[asset.uri]].extra = event_extra(table)
                continue
            for alias in self._aliases:
                events[alias].add(asset, extra=event_extra(table))

    def _announce_notifications(self, result: JobResult, context: Context) -> None:
        events: Any = context["outlet_events"]
        told = to_data(result.notifications)
        for alias in self._aliases if told else ():
            events[alias].add(notification_asset(result.pipeline), extra={"notifications": told})

    @property
    def _aliases(self) -> list[AssetAlias]:
        return [outlet for outlet in self.outlets if isinstance(outlet, AssetAlias)]


def event_extra(table: TableResult) -> dict[str, str | int | None]:
    """Return what an asset event tells of a table's step."""
    return {
        "from_lsn": str(table.after) if table.after else None,
        "to_lsn": str(table.lsn) if table.lsn else None,
        "rows": count_changes(table),
        "commit_ts_ms": table.commit_ts_ms,
    }
