"""The configuration's lists against what the source has."""

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
    """Return the entries of all lists that match nothing; `schemas` are those of the chosen tables.

    Other tables are read only where an entry of column.exclude.list would be refused without them: in one statement
    for each hundred.

    :raises SourceError: the catalog cannot be read.
    """
    of_tables = unmatched_tables(config.selection, config.snapshot_include, registered)
    of_columns = unmatched_columns(config.selection, schemas)
    if doubtful := tables_in_doubt(of_columns, registered, schemas.keys()):
        others = {
            table: [column.name for column in columns] for table, columns in read_columns(source, doubtful).items()
        }
        of_columns = unmatched_columns(config.selection, schemas, others)
    return [*of_tables, *of_columns]


def warn_of(unmatched: Sequence[Unmatched]) -> None:
    """Log the entries that match nothing and are not refused."""
    for one in unmatched:
        if not one.refused:
            log.warning("%s. %s", one.problem, one.remedy)
