"""A run of a verification on its ports: tables in parallel, each from where an earlier run has left off."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.table import RejectedTable
from airflow_provider_db2cdc.cdc.verify.document import (
    TableVerdict,
    VerdictStatus,
    VerifyResult,
    VerifySpec,
    verdict_of,
)
from airflow_provider_db2cdc.cdc.verify.report import TableReport
from airflow_provider_db2cdc.tick.log import describe, log_progress, log_stack
from airflow_provider_db2cdc.verify.ports import Ports
from airflow_provider_db2cdc.verify.table import TableVerification


def run_verification(spec: VerifySpec, ports: Ports) -> VerifyResult:
    """Compare the tables with their current state, and return a verdict on each.

    A table that fails does not end the others. A later run of the same verification continues after the chunks that are
    in the report.
    """
    deadline = None if spec.budget_s is None else time.monotonic() + spec.budget_s
    recorded = ports.report.read(spec.verification)
    with ThreadPoolExecutor(max(1, spec.settings.parallel_tables)) as pool:
        tables = [
            pool.submit(_verify, spec, ports, task, _usable(recorded.get(task.table), task), deadline)
            for task in spec.tables
        ]
        verdicts = [table.result() for table in tables]
    verdicts += map(partial(_unread, "failed"), spec.rejected)
    verdicts += map(partial(_unread, "excluded"), spec.excluded)
    return VerifyResult(spec.pipeline, spec.verification, tuple(verdicts), spec.quick)


def _usable(report: TableReport | None, task: TableTask) -> TableReport | None:
    """Return a table's report, None if its columns have changed since. Then the table is compared from its begin."""
    return report if report is not None and report.fingerprint == task.schema.fingerprint else None


def _verify(
    spec: VerifySpec, ports: Ports, task: TableTask, report: TableReport | None, deadline: float | None
) -> TableVerdict:
    started, error = time.monotonic(), ""
    try:
        with ports.source.connect() as reader:
            verification = TableVerification(spec, ports, reader, task, deadline, report)
            try:
                verification.run()
            finally:
                report = verification.report
    except Exception as problem:
        error = describe(problem)
        log_progress(f"verify table={task.table} failed: {error}")
        log_stack(problem)
    taken_s = round(time.monotonic() - started, 1)
    if report is None:
        return TableVerdict(task.table, "failed", error=error, duration_s=taken_s)
    return verdict_of(report, spec.show_keys, taken_s, error)


def _unread(status: VerdictStatus, rejected: RejectedTable) -> TableVerdict:
    return TableVerdict(rejected.table, status, error=rejected.error)
