"""Creation, reads and writes of Delta tables by path or by catalog name. Each write returns the version it made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.conflict import repeat_on_conflict
from airflow_provider_db2cdc.spark.quoting import text_literal
from airflow_provider_db2cdc.spark.session import temporary_conf
from airflow_provider_db2cdc.tick.log import is_concurrent_write

T = TypeVar("T")
TxnId = tuple[str, int]
"""A transaction id of Delta: an appId, and a number that only grows. Delta skips a write with an id that it has."""

STATISTICS = "delta.dataSkippingStatsColumns"
"""Delta's table property: the columns with a minimum and a maximum in each file's statistics."""

LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
"""A setting that Delta writes: the version that the session's last commit made."""

APP_ID, APP_VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


@dataclass(frozen=True)
class Version:
    """A version of a Delta table, and the id of the table. A table that is dropped and created again has another id."""

    id: str
    number: int


def table_exists(spark: SparkSession, name: DeltaName) -> bool:
    """Whether a Delta table of that name exists."""
    return DeltaTable.isDeltaTable(spark, name.name) if name.is_path else spark.catalog.tableExists(name.name)


def create_table(spark: SparkSession, name: DeltaName, ddl: str, properties: Mapping[str, str]) -> None:
    """Create an empty Delta table if it is missing. Another run may do the same at the same time."""
    listed = _listed(properties)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {sql_name(name)} ({ddl}) USING delta TBLPROPERTIES ({listed})")


def set_properties(spark: SparkSession, name: DeltaName, properties: Mapping[str, str]) -> None:
    """Set properties of the table in a separate commit."""
    statement = f"ALTER TABLE {sql_name(name)} SET TBLPROPERTIES ({_listed(properties)})"
    repeat_on_conflict(lambda: spark.sql(statement), name.name)


def table_properties(spark: SparkSession, name: DeltaName) -> dict[str, str]:
    """Return the table's properties."""
    return {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {sql_name(name)}").collect()}


def load(spark: SparkSession, name: DeltaName, version: int | None = None) -> DataFrame:
    """Return the table's rows: those of a version, or the newest ones."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(name.name) if name.is_path else reader.table(name.name)


@failpoint("append_rows")
def append(rows: DataFrame, name: DeltaName, pair: TxnId | None = None) -> int | None:
    """Append rows under a transaction id (`pair`). Return the new version, or None if Delta skipped the write.

    Delta skips it if the table has the transaction id already.

    :raises Exception: when another writer commits the same transaction id meanwhile (ConcurrentTransactionException).
        It is a PySparkException, in Spark 4.0 an error of Py4J.
    """
    options = {} if pair is None else {"txnAppId": pair[0], "txnVersion": str(pair[1])}
    writer = rows.write.format("delta").mode("append").options(**options)
    save = writer.save if name.is_path else writer.saveAsTable
    return repeat_on_conflict(lambda: _watched(rows.sparkSession, lambda: save(name.name))[1], name.name)


def append_first(rows: DataFrame, name: DeltaName, pair: TxnId) -> bool:
    """Append rows and return True. Return False if another writer has committed the same transaction id (`pair`)."""
    try:
        return append(rows, name, pair) is not None
    except Exception as error:
        if not is_concurrent_write(error):
            raise
        return False


def commit_with(
    spark: SparkSession, pair: TxnId, step: Callable[[], T], conf: Mapping[str, str] | None = None
) -> tuple[T, int | None]:
    """Run a step that writes with a transaction id (`pair`) of the session. Return its result and the version it made.

    A MERGE takes its transaction id only from the session. `conf` are more settings for this step. The step is repeated
    after a conflict with another writer, such as an OPTIMIZE.
    """
    with temporary_conf(spark, {APP_ID: pair[0], APP_VERSION: str(pair[1]), **(conf or {})}):
        return repeat_on_conflict(lambda: _watched(spark, step), pair[0])


def current_version(spark: SparkSession, name: DeltaName) -> Version:
    """Return the table's newest version, without a query."""
    # delta_table() has updated the snapshot when it resolved the table.
    snapshot = delta_table(spark, name)._jdt.deltaLog().unsafeVolatileSnapshot()
    return Version(snapshot.metadata().id(), int(snapshot.version()))


def newest_version(spark: SparkSession, name: DeltaName) -> int:
    """Return the number of the table's newest version."""
    return current_version(spark, name).number


def delta_table(spark: SparkSession, name: DeltaName) -> DeltaTable:
    """Return the table as a DeltaTable, for merge, delete and history."""
    return DeltaTable.forPath(spark, name.name) if name.is_path else DeltaTable.forName(spark, name.name)


def sql_name(name: DeltaName) -> str:
    """Return the table's name in the form for an SQL statement."""
    return f"delta.`{name.name}`" if name.is_path else name.name


def literal_frame(spark: SparkSession, rows: Sequence[tuple[object, ...]], ddl: str) -> DataFrame:
    """Return a few rows as a frame of literals. Unlike createDataFrame this starts no Python worker."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    kinds = [field.dataType for field in schema]
    literals = [[_literal(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in rows]
    structs = [F.struct(*values).cast(f"struct<{ddl}>") for values in literals]
    return spark.range(1, numPartitions=1).select(F.explode(F.array(*structs)).alias("r")).select("r.*")


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{text_literal(key)} = {text_literal(value)}" for key, value in properties.items())


def _watched(spark: SparkSession, step: Callable[[], T]) -> tuple[T, int | None]:
    spark.conf.unset(LAST_COMMIT)
    done = step()
    version = spark.conf.get(LAST_COMMIT, None)
    return done, None if version is None else int(version)


def _literal(value: object, kind: DataType) -> Column:
    if isinstance(value, list):
        # The list is one text literal. A group may have thousands of chunks, and each literal is a call to the JVM.
        assert isinstance(kind, ArrayType)
        assert isinstance(kind.elementType, StructType)
        items = [dict(zip(kind.elementType.names, item, strict=True)) for item in value]
        return F.from_json(F.lit(json.dumps(items)), kind, {"mode": "FAILFAST"})
    if isinstance(value, Mapping):
        return F.create_map(*(F.lit(key_or_value) for item in value.items() for key_or_value in item))
    return F.lit(value)
