"""The ports of a verification on JDBC and Delta, for one table of the sandbox."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.verify.document import VerifySpec
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.spark.ledger.journal import Journal
from airflow_provider_db2cdc.spark.session import TableSessions
from airflow_provider_db2cdc.spark.verify.count_comparer import CountComparer
from airflow_provider_db2cdc.spark.verify.report_table import ReportTable
from airflow_provider_db2cdc.spark.verify.row_comparer import RowComparer
from airflow_provider_db2cdc.spark.verify.source_reader import VerifyReaders
from airflow_provider_db2cdc.spark.verify.state import States
from airflow_provider_db2cdc.verify.ports import Ports
from support.delta_twin import DeltaTwin
from support.port_verify import CHUNK_ROWS


@dataclass
class DeltaVerifyTwin:
    """The ports on Delta."""

    twin: DeltaTwin

    def ports(self, quick: bool = False) -> Ports:
        """Return ports on sessions of their own."""
        lake, spec = self.twin.lake, self.twin.spec
        spark = lake.pipeline.spark
        settings = replace(spec.settings, snapshot_chunk_rows=CHUNK_ROWS)
        planned = VerifySpec("test", "v", lake.layout.target, spec.source, spec.tables, settings, quick)
        sessions = TableSessions(spark, lake.owner.mark)
        states = States(lake.layout, lake.owner, settings, JdbcSource(spec.source), sessions)
        comparer = CountComparer(states) if quick else RowComparer(states)
        report = ReportTable(spark, lake.layout, lake.owner, "counts" if quick else "rows")
        return Ports(VerifyReaders(spark, planned), comparer, report)

    def journal(self) -> Journal:
        """Open the journal."""
        lake = self.twin.lake
        return Journal(lake.pipeline.spark, lake.layout, lake.owner, "run")
