"""Clustering of a state by its key, so that a merge of few keys touches few files."""

from __future__ import annotations

import re
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.maintenance.file_layout import clustering_columns
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.delta.conflict import skip_on_conflict
from airflow_provider_db2cdc.spark.delta.table_io import STATISTICS, load, sql_name, table_properties
from airflow_provider_db2cdc.spark.quoting import quoted

LISTED = re.compile(r"`((?:[^`]|``)+)`|([^,`\s][^,`]*)")
"""One name of a list of columns, in backticks or without."""


def wanted_clustering(spark: SparkSession, layout: Layout, table: TableId) -> tuple[list[str], bool]:
    """Return the columns by which a state is to be clustered, and whether it is or will be clustered.

    There are no columns if the clustering cannot or need not be changed.

    Tables get their clustering here and not when they are created. Delta only sorts rows in an OPTIMIZE, so before the
    first one it has no effect.
    """
    state = layout.state(table)
    detail = spark.sql(f"DESCRIBE DETAIL {sql_name(state)}").select("clusteringColumns", "partitionColumns").first()
    key = load(spark, layout.changes(table)).schema["key"].dataType
    if detail is None or detail["partitionColumns"] or not isinstance(key, StructType):
        return [], detail is not None and bool(detail["clusteringColumns"])
    types = {field.name: field.dataType.simpleString() for field in load(spark, state).schema}
    with_statistics = listed(table_properties(spark, state).get(STATISTICS, ""))
    wanted = clustering_columns(key.names, types, with_statistics)
    present = [name for text in detail["clusteringColumns"] for name in listed(text)]
    return wanted if wanted != present else [], bool(wanted or present)


def cluster(spark: SparkSession, layout: Layout, table: TableId, columns: list[str]) -> bool:
    """Cluster a state by these columns from its next OPTIMIZE on. Return False if other writers won."""
    state = layout.state(table)
    statement = f"ALTER TABLE {sql_name(state)} CLUSTER BY ({', '.join(map(quoted, columns))})"
    return skip_on_conflict(partial(spark.sql, statement), state.name)


def listed(text: str) -> list[str]:
    """Return the names in a list of columns, as Delta writes it."""
    return [quoted_name.replace("``", "`") or plain.strip() for quoted_name, plain in LISTED.findall(text)]
