"""Checks of the configuration's lists against the tables and columns of the source."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from airflow_provider_db2cdc.cdc.selection.unmatched import (
    Unmatched,
    tables_in_doubt,
    unmatched_columns,
    unmatched_tables,
)
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.source.catalog import read_columns
from airflow_provider_db2cdc.source.connection import Source

log = logging.getLogger(__name__)


def find_unmatched(
    source: Source, config: PipelineConfig, registered: Collection[TableId], schemas: Mapping[TableId, TableSchema]
) -> list[Unmatched]:
    """Return the entries of all lists that match nothing. `schemas` holds the chosen tables.

    Other tables are read only if an entry of column.exclude.list would be rejected without them. That takes one
    statement for each 100 tables.

    :raises SourceError: when the catalog cannot be read.
    """
    table_entries = unmatched_tables(config.selection, config.snapshot_include, registered)
    column_entries = unmatched_columns(config.selection, schemas)
    if doubtful := tables_in_doubt(column_entries, registered, schemas.keys()):
        unchosen = {
            table: [column.name for column in columns] for table, columns in read_columns(source, doubtful).items()
        }
        column_entries = unmatched_columns(config.selection, schemas, unchosen)
    return [*table_entries, *column_entries]


def warn_of(unmatched: Sequence[Unmatched]) -> None:
    """Log the entries that match nothing and that do not stop the tick."""
    for entry in unmatched:
        if not entry.refused:
            log.warning("%s. %s", entry.problem, entry.remedy)
