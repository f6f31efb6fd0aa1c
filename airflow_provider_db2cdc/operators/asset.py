"""The Airflow assets of a pipeline's tables, on which other DAGs can be scheduled."""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from airflow_provider_db2cdc.cdc.table import TableId

SCHEME = "db2cdc"


def table_asset(pipeline: str, table: TableId | str) -> Asset:
    """Return the asset of one table, `db2cdc://<pipeline>/<schema>/<table>`, to schedule a DAG on its changes.

    `table` is a TableId, or `SCHEMA.TABLE` as the catalog spells it. The target's path is not part of the asset, so
    that DAGs keep working when the lake moves.
    """
    schema, name = (table.schema, table.name) if isinstance(table, TableId) else table.split(".", 1)
    return Asset(f"{SCHEME}://{pipeline}/{quote(schema, safe='$')}/{quote(name, safe='$')}")


def pipeline_alias(pipeline: str) -> AssetAlias:
    """Return the alias under which the commit task emits the events of all tables of a pipeline."""
    return AssetAlias(name=f"{SCHEME}.{pipeline}")


def notification_asset(pipeline: str) -> Asset:
    """Return the asset whose events report a pipeline's snapshots.

    The path of a table has two parts, so this path is never that of a table.
    """
    return Asset(f"{SCHEME}://{pipeline}/notifications")
