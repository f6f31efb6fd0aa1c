"""How many rows small tables have that begin with a snapshot. It decides how Spark is configured, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import LOADING, SHORT_ROWS
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.planning.table_plan import TablePlan
from airflow_provider_db2cdc.sql.asn import COUNTED_AT_ONCE
from airflow_provider_db2cdc.sql.chunk import count_few

log = logging.getLogger(__name__)


def with_source_rows(source: Source, plans: Sequence[TablePlan]) -> list[TablePlan]:
    """Return the table plans with the rows of the source's tables that begin with a snapshot and are small.

    All tables together may cost `SHORT_ROWS` rows, shared evenly. A table with more rows than its share keeps None, and
    one that is read by a select. So does each table after an error: the snapshot itself reports that.
    """
    loading = [plan.table for plan in plans if plan.action in LOADING and not plan.select]
    if not loading:
        return list(plans)
    limit, counts = SHORT_ROWS // len(loading), dict[TableId, int]()
    try:
        for start in range(0, len(loading), COUNTED_AT_ONCE):
            tables = loading[start : start + COUNTED_AT_ONCE]
            counts |= {tables[place]: int(count) for place, count in source.rows(count_few(tables, limit + 1))}
    except SourceError as error:
        log.info("the rows of new tables are not counted: %s", error)
        return list(plans)
    few = {table: count for table, count in counts.items() if count <= limit}
    return [replace(plan, source_rows=few.get(plan.table)) for plan in plans]
