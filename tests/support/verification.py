"""Verifications of tables with a key in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict, VerifySpec
from airflow_provider_db2cdc.verify.ports import Ports
from airflow_provider_db2cdc.verify.run import run_verification
from support.memory_pipeline import MemoryPipeline
from support.memory_source import lsn
from support.memory_verify import MemoryComparer, MemoryReport, VerifySource, nothing


def verify(
    pipeline: MemoryPipeline,
    tables: Sequence[TableId],
    meanwhile: Callable[[], None] = nothing,
    quick: bool = False,
    report: MemoryReport | None = None,
) -> dict[TableId, TableVerdict]:
    """Verify tables, while things happen. A report that has some of it is continued."""
    source = pipeline.source
    tasks = [
        TableTask(source.schema(table), source.registration(table), None, lsn(source.captured), 0) for table in tables
    ]
    settings = replace(pipeline.settings, high_mark_timeout_s=5.0)
    given = SourceSpec("jdbc:db2://h:1/D:", "D", "s", "ASN")
    spec = VerifySpec("p", "v", "/t", given, tuple(tasks), settings, quick)
    comparer = MemoryComparer(source, pipeline.target, pipeline.journal, quick, meanwhile)
    result = run_verification(
        spec, Ports(VerifySource(source, meanwhile), comparer, MemoryReport() if report is None else report)
    )
    return {verdict.table: verdict for verdict in result.tables}
