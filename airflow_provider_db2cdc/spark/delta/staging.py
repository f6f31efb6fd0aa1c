"""Rows that a snapshot has read of a table, kept until capture has passed their read; each group's are a version."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.ownership import Place, ensure_table
from airflow_provider_db2cdc.spark.delta.table_io import append, delete_files, load, newest_version, overwrite
from airflow_provider_db2cdc.spark.events.envelope import row_type

FILES = {"maxRecordsPerFile": "100000"}
"""So that what few readers stage is read by as many tasks as there are slots: a file of few bytes is not divided."""


@dataclass(frozen=True)
class Staging:
    """The staging table of one source table, on one session."""

    spark: SparkSession
    place: Place
    schema: TableSchema

    @property
    def name(self) -> DeltaName:
        """Where it lies."""
        return self.place.layout.staging(self.schema.table)

    @failpoint("stage_rows")
    def write(self, rows: DataFrame) -> int:
        """Replace the staged rows (`row`, `chunk`) and return the table's version that holds just these.

        :raises TargetError: another run's were written meanwhile.
        """
        ddl = f"row {row_type(self.schema)}, chunk int"
        no_ends = {"delta.dataSkippingNumIndexedCols": "0"}
        ensure_table(self.spark, self.place.owner, self.name, self.schema.names, ddl, no_ends)
        version = overwrite(rows, self.name, FILES)
        if version is not None:
            return version
        # Without rows before and after, Delta has nothing to commit: then the newest version is as empty.
        version = newest_version(self.spark, self.name)
        if not self.rows(version).isEmpty():
            raise TargetError(
                f"{self.schema.table}: its staged rows vanished while they were written", "Run the tick again."
            )
        return version

    def add(self, rows: DataFrame, onto: int) -> int | None:
        """Stage rows beside those of that version, and return the version that holds just all of these.

        None where another run has staged rows meanwhile.
        """
        version = append(rows, self.name, files=FILES)
        if version is None:
            return onto
        return version if version == onto + 1 else None

    def rows(self, version: int) -> DataFrame:
        """Return the rows that were staged as that version."""
        return load(self.spark, self.name, version)

    def doubled(self, version: int) -> DataFrame:
        """Return the keys that several of the rows have that were staged as that version."""
        keys = [F.col("row").getField(name).alias(name) for name in self.schema.key]
        counted = self.rows(version).groupBy(*keys).agg(F.count("*").alias("__rows"))
        return counted.where("__rows > 1").drop("__rows")

    @failpoint("delete_staged_rows")
    def delete(self, version: int) -> None:
        """Delete from storage what was staged as that version: its batch is applied, so nobody asks for it again."""
        delete_files(self.rows(version))
