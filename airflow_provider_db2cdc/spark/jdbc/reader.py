"""What the readers of every job ask of the source, on one JDBC connection of the Spark driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from airflow_provider_db2cdc.cdc.job import ApplySettings, SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import SignalTable
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import find_bounds
from airflow_provider_db2cdc.spark.jdbc.column_check import column_errors
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.spark.jdbc.watermark import watermark
from airflow_provider_db2cdc.sql.asn import global_row
from airflow_provider_db2cdc.tick.ports import Watermark


class ReaderSpec(Protocol):
    """The part of a job's spec that says how its source is read."""

    @property
    def source(self) -> SourceSpec:
        """The source."""

    @property
    def settings(self) -> ApplySettings:
        """The settings of the pipeline."""

    @property
    def signal_table(self) -> SignalTable | None:
        """The signal table, whose rows may be watermarks."""


@dataclass(frozen=True)
class Reader:
    """One JDBC connection to the source of a job."""

    spec: ReaderSpec
    connection: DriverConnection

    @cached_property
    def watermark(self) -> Watermark:
        """The watermark that the configuration names."""
        spec = self.spec
        return watermark(spec.settings.watermarking, self.connection, spec.source.asn_schema, spec.signal_table)

    def capture_lsn(self) -> Lsn | None:
        """Return the greatest SYNCHPOINT."""
        synchpoint = self.connection.text_rows(global_row(self.spec.source.asn_schema).text)[0][0]
        return Lsn.parse(synchpoint) if synchpoint else None

    def find_bounds(self, task: TableTask, table_snapshot: TableSnapshot) -> Sequence[Sequence[str]]:
        """Walk the key of a table in steps of a chunk."""
        return find_bounds(self.connection, task.schema, self.spec.settings, table_snapshot)

    def column_errors(self, tasks: Sequence[TableTask]) -> Mapping[TableId, Exception]:
        """Compare the columns in the catalog with those of the plan."""
        return column_errors(tasks, self.connection)
