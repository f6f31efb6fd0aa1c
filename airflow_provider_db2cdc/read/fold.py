"""Events folded into rows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.read.changes import ORDER
from airflow_provider_db2cdc.spark.events.image_count import image_counts


def fold(changes: DataFrame) -> DataFrame:
    """Return the rows that events of `read_changes` leave: the columns of the source table.

    All events of a table up to a batch give its current state after that batch. The events of a range give the rows of
    the keys that still have one. For a table without a key, equal rows come as often as they are there. Its
    events must begin with the change log: a part of the log does not say how many copies there were before.
    """
    if _has_key(changes):
        return last_events(changes).where("after IS NOT NULL").select("after.*")
    copies = F.sequence(F.lit(1), F.col("last.held").cast("int"))
    rows = image_counts(changes).where("last.held > 0").withColumn("copy", F.explode(copies))
    return rows.select("image.*")


def last_events(changes: DataFrame) -> DataFrame:
    """Return the last event of each key, for a merge: `key`, `op`, `before`, `after`, and the columns of the order.

    :raises ConfigurationError: when the table has no key. Its events are counted instead (`fold`).
    """
    if not _has_key(changes):
        raise ConfigurationError("a table without a key has no last event of a key", "Use `fold`.")
    last = F.max_by(F.struct("op", "before", "after", *ORDER), F.struct(*ORDER))
    return changes.where("op IS NOT NULL").groupBy("key").agg(last.alias("last")).select("key", "last.*")


def _has_key(changes: DataFrame) -> bool:
    return isinstance(changes.schema["key"].dataType, StructType)
