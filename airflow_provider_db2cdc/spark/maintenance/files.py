"""The files of a Delta table: how many there are, and the commands that rewrite or remove them."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.maintenance.file_layout import SMALL_BYTES, FileStatistics
from airflow_provider_db2cdc.cdc.maintenance.job import FileCount
from airflow_provider_db2cdc.spark.delta.conflict import skip_on_conflict
from airflow_provider_db2cdc.spark.delta.table_io import delta_table, sql_name, table_properties
from airflow_provider_db2cdc.spark.quoting import text_literal
from airflow_provider_db2cdc.spark.session import temporary_conf

ATTEMPTS = 3
WEEK_S = 604_800.0
RETAINED = "delta.deletedFileRetentionDuration"
EPOCH = "timestamp'2000-01-01'"

COMPACTION_CONF = {
    "spark.databricks.delta.optimize.minFileSize": str(2 * SMALL_BYTES),
    "spark.databricks.delta.optimize.maxFileSize": str(8 * SMALL_BYTES),
}
"""Delta's defaults are 1 GB for both: files of some hundred MB would be written again each time."""

VACUUM_CONF = {
    # Each VACUUM would write two commits, also where it removes nothing.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    # By default Delta 4.4 takes the table's property and ignores a longer RETAIN.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # VACUUM lists a table's files by so many tasks, by default 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}


class TableFiles:
    """The files of one Delta table. What Delta's log says of a version is read once."""

    def __init__(self, spark: SparkSession, name: DeltaName) -> None:
        self._spark = spark
        self._name = name
        self._read: tuple[int, FileStatistics] | None = None

    def statistics(self) -> FileStatistics:
        """Return what Delta's log says of the files of the newest version."""
        # delta_table() has updated the snapshot when it resolved the table.
        snapshot: Any = self._delta_log().unsafeVolatileSnapshot()
        version = int(snapshot.version())
        if self._read is None or self._read[0] != version:
            self._read = version, _statistics(DataFrame(snapshot.allFiles().toDF(), self._spark))
        return self._read[1]

    def stored(self) -> FileCount:
        """Return what is in the table's folder: also Delta's log, and files that only older versions have."""
        return self._content(self._delta_log().dataPath())

    def needs_vacuum(self) -> bool:
        """Whether the folder has files that the newest version does not need. They may be too young to be removed."""
        logged = self._content(self._delta_log().logPath())
        return self.statistics().needs_vacuum(self.stored().files - logged.files)

    def _delta_log(self) -> Any:
        return delta_table(self._spark, self._name)._jdt.deltaLog()

    def _content(self, path: Any) -> FileCount:
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()
        summary = path.getFileSystem(conf).getContentSummary(path)
        return FileCount(int(summary.getFileCount()), int(summary.getLength()))


def _statistics(files: DataFrame) -> FileStatistics:
    is_small = F.when(F.col("size") < SMALL_BYTES, 1)
    in_file = F.when(F.col("deletionVector.storageType") != "i", F.col("deletionVector.pathOrInlineDv"))
    counts = (F.count("*"), F.sum("size"), F.count(is_small), F.count("deletionVector"), F.count_distinct(in_file))
    row = files.agg(*counts).first()
    return FileStatistics(*(int(value or 0) for value in row or ()))


def compact(spark: SparkSession, name: DeltaName) -> bool:
    """Compact small files. In a clustered table Delta sorts its rows by the key. Return False if other writers won."""
    with temporary_conf(spark, COMPACTION_CONF):
        return skip_on_conflict(partial(_run, spark, f"OPTIMIZE {sql_name(name)}"), name.name, ATTEMPTS)


def purge(spark: SparkSession, name: DeltaName) -> bool:
    """Write files with deleted rows again, without these rows. Return False if other writers won."""
    statement = f"REORG TABLE {sql_name(name)} APPLY (PURGE)"
    return skip_on_conflict(partial(_run, spark, statement), name.name, ATTEMPTS)


def vacuum(spark: SparkSession, name: DeltaName, hours: int) -> None:
    """Remove the files that no version of the last `hours` needs. It makes no commit."""
    with temporary_conf(spark, VACUUM_CONF):
        _run(spark, f"VACUUM {sql_name(name)} RETAIN {hours} HOURS")


def retained_s(spark: SparkSession, name: DeltaName) -> float:
    """Return for how long the table keeps removed files, in seconds."""
    text = table_properties(spark, name).get(RETAINED)
    if text is None:
        return WEEK_S
    later = f"{EPOCH} + CAST({text_literal(text)} AS INTERVAL)"
    row = spark.sql(f"SELECT unix_timestamp({later}) - unix_timestamp({EPOCH})").first()
    return float(row[0]) if row is not None else WEEK_S


def _run(spark: SparkSession, statement: str) -> None:
    spark.sql(statement).collect()
