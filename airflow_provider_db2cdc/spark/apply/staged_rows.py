"""Rows that a snapshot has read, kept by Spark's executors until their batch is applied.

They belong to the run that read them. If the run dies, the next one reads their chunks again. A durable copy of each
row would cost more than the few reads that it saves.
"""

from __future__ import annotations

from functools import reduce
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.session import kept_level


class StagedRows:
    """The staged rows (`row`, `chunk`) of one run, by the id of their read. Several threads may use it."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[DataFrame, ...]] = {}

    def __contains__(self, read_id: str) -> bool:
        """Whether this run has read these rows."""
        return read_id in self._parts

    @failpoint("stage_rows")
    def add(self, rows: DataFrame, is_few: bool, read_id: str = "") -> str:
        """Read rows now, and keep them together with those of `read_id`, if given. Return the id of all of them."""
        level = kept_level(str(rows.sparkSession.sparkContext.master), is_few)
        read = rows.localCheckpoint(storageLevel=level)
        new_id = read_id or uuid4().hex
        self._parts[new_id] = (*self._parts.get(read_id, ()), read)
        return new_id

    def newest(self, read_id: str) -> DataFrame:
        """Return the rows that were added last."""
        return self._parts[read_id][-1]

    def rows(self, spark: SparkSession, read_id: str) -> DataFrame:
        """Return all rows of a read as a frame of this session. The thread that read them has another session."""
        return reduce(DataFrame.unionAll, [_on_session(spark, part) for part in self._parts[read_id]])

    def drop(self, read_id: str) -> None:
        """Free the storage of a read. No batch may need it any more."""
        for part in self._parts.pop(read_id, ()):
            part._jdf.queryExecution().analyzed().rdd().unpersist(False)


def _on_session(spark: SparkSession, checkpointed: DataFrame) -> DataFrame:
    rows = checkpointed._jdf.queryExecution().toRdd()
    frame = spark._jsparkSession.internalCreateDataFrame(rows, checkpointed._jdf.schema(), False)
    return DataFrame(frame, spark)
