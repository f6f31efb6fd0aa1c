"""Rows that a snapshot has read of a table, kept until capture has passed the read. Each chunk group has a version."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.ownership import Place, TableDefinition, ensure_table
from airflow_provider_db2cdc.spark.delta.table_io import append, delete_files, load, newest_version, overwrite
from airflow_provider_db2cdc.spark.events.envelope import row_type

FILES = {"maxRecordsPerFile": "100000"}
"""Small files, so that many tasks can read what few readers have staged. Spark does not split a small file."""


@dataclass(frozen=True)
class Staging:
    """The staging table of one source table, on one session."""

    spark: SparkSession
    place: Place
    schema: TableSchema

    @property
    def name(self) -> DeltaName:
        """The name or path of the staging table."""
        return self.place.layout.staging(self.schema.table)

    @failpoint("stage_rows")
    def write(self, rows: DataFrame) -> int:
        """Replace the staged rows (`row`, `chunk`) and return the table's version with only these.

        :raises TargetError: when another run has staged rows at the same time.
        """
        ddl = f"row {row_type(self.schema)}, chunk int"
        no_statistics = {"delta.dataSkippingNumIndexedCols": "0"}
        definition = TableDefinition(self.name, ddl, self.schema.names, no_statistics)
        ensure_table(self.spark, self.place.owner, definition)
        version = overwrite(rows, self.name, FILES)
        if version is not None:
            return version
        # Without rows before and after, Delta has nothing to commit. Then the newest version must be empty, too.
        version = newest_version(self.spark, self.name)
        if not self.rows(version).isEmpty():
            raise TargetError(
                f"{self.schema.table}: its staged rows vanished while they were written", "Run the tick again."
            )
        return version

    def add(self, rows: DataFrame, onto: int) -> int | None:
        """Stage rows in addition to those of version `onto`. Return the version that holds both.

        Returns None if another run has staged rows since that version.
        """
        version = append(rows, self.name, files=FILES)
        if version is None:
            return onto
        return version if version == onto + 1 else None

    def rows(self, version: int) -> DataFrame:
        """Return the rows (`row`, `chunk`) of a version."""
        return load(self.spark, self.name, version)

    def doubled(self, version: int) -> DataFrame:
        """Return the keys (the key's columns) that several rows of a version share."""
        keys = [F.col("row").getField(name).alias(name) for name in self.schema.key]
        counted = self.rows(version).groupBy(*keys).agg(F.count("*").alias("__rows"))
        return counted.where("__rows > 1").drop("__rows")

    @failpoint("delete_staged_rows")
    def delete(self, version: int) -> None:
        """Delete the files of a version from storage. Its batch must be applied, so that no run reads it again."""
        delete_files(self.rows(version))
