"""The Airflow assets of a pipeline's tables, on which other DAGs can be scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import InletEventsAccessors

from airflow_provider_db2cdc.cdc.offset.announcement import Announcement, in_event
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.table import TableId

SCHEME = "db2cdc"
EVENTS_PER_TABLE, OTHER_EVENTS, EVENTS_READ = 2, 20, 100
"""Newest events of an asset that are looked at. A person, or a declared outlet, may have added some without a range."""


def table_asset(pipeline: str, table: TableId | str) -> Asset:
    """Return the asset of one table, `db2cdc://<pipeline>/<schema>/<table>`, to schedule a DAG on its changes.

    `table` is a TableId, or `SCHEMA.TABLE` as the catalog spells it. Quote a part that contains a dot: `"A.B"."C D"`.
    The target's path is not part of the asset, so that DAGs keep working when the lake moves.

    :raises ConfigurationError: when the text does not name one table.
    """
    own = table if isinstance(table, TableId) else parse_table(table, "table_asset")
    return Asset(f"{SCHEME}://{pipeline}/{'/'.join(quote(part, safe='$') for part in own.parts)}")


def pipeline_alias(pipeline: str) -> AssetAlias:
    """Return the alias under which the commit task emits the events of all tables of a pipeline."""
    return AssetAlias(name=f"{SCHEME}.{pipeline}")


def notification_asset(pipeline: str) -> Asset:
    """Return the asset whose events report a pipeline's snapshots.

    The path of a table has two parts, so this path is never that of a table.
    """
    return Asset(f"{SCHEME}://{pipeline}/notifications")


def recent_announcements(pipeline: str, tables: int) -> Mapping[tuple[TableId, str], Announcement]:
    """Return the newest range of each table and change log among the newest asset events of a pipeline's alias.

    It looks at enough events for this many `tables`, in one call. An event of a declared outlet is not among them.

    :raises AirflowRuntimeError: when Airflow's API cannot be asked. A retry may succeed.
    """
    found: dict[tuple[TableId, str], Announcement] = {}
    for event in _newest_events(pipeline_alias(pipeline), EVENTS_PER_TABLE * tables + OTHER_EVENTS):
        announced, table = in_event(event.extra), _table_of(pipeline, event.asset.uri)
        if announced is not None and table is not None:
            found.setdefault((table, announced.log_id), announced)
    return found


def _table_of(pipeline: str, uri: str) -> TableId | None:
    """Return the table of a pipeline's asset, None if the asset is no table's."""
    parts = uri.removeprefix(f"{SCHEME}://{pipeline}/").split("/")
    table = TableId(*map(unquote, parts)) if len(parts) == 2 else None
    return table if table is not None and table_asset(pipeline, table).uri == uri else None


def newest_announcement(pipeline: str, table: TableId, log_id: str) -> Announcement | None:
    """Return the newest range in a table's asset events that belongs to this change log, None if there is none.

    :raises AirflowRuntimeError: when Airflow's API cannot be asked. A retry may succeed.
    """
    events = _newest_events(table_asset(pipeline, table), EVENTS_READ)
    announced = filter(None, (in_event(event.extra) for event in events))
    same_log = [announcement for announcement in announced if announcement.log_id == log_id]
    return max(same_log, key=lambda announcement: announcement.to_batch, default=None)


def _newest_events(source: Asset | AssetAlias, limit: int) -> list[Any]:
    """Return the newest events of an asset or alias, the newest first."""
    return newest_first(InletEventsAccessors([source])[source], limit)


def newest_first(events: Any, limit: int) -> list[Any]:
    """Return the newest of the events that Airflow gives. Airflow 3.1 gives a list of all events, the oldest first."""
    return events[: -limit - 1 : -1] if isinstance(events, list) else list(events.ascending(False).limit(limit))
