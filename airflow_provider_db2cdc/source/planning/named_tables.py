"""The tables that a command, a form or an operator names."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError


def named_tables(names: Sequence[str], known: Collection[TableId], what: str) -> list[TableId]:
    """Return the tables of these names. `known` are the captured tables of the pipeline, `what` is named in an error.

    :raises ConfigurationError: when a name is not that of a known table.
    """
    tables = [parse_table(name, what) for name in names]
    if unknown := [str(table) for table in tables if table not in known]:
        raise ConfigurationError(
            f"{', '.join(unknown)} is not a captured table of this pipeline",
            f"Its tables are {shortened(sorted(known))}.",
        )
    return tables
