"""Job specs and results to run tasks with."""

from collections.abc import Iterable
from typing import Any

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, SourceSpec, Status, TableResult, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def table_task(name: str, believed: int | None = None, upto: int = 9, rows: int = 3) -> TableTask:
    table = TableId("SALES", name)
    schema = TableSchema(table, (Column("ID", "INTEGER", nullable=False),), ("ID",))
    identity = CaptureIdentity(f"ASNCDC.CD_{name}", "2026-01-01T00:00:00", "2025-01-01T00:00:00", "")
    capture = CaptureRegistration(
        table, "ASNCDC", f"CD_{name}", "A", "", "DI", None, None, lsn(upto), schema.columns, identity
    )
    return TableTask(schema, capture, lsn(believed) if believed else None, lsn(upto), rows)


def job_spec(*names: str, pipeline: str = "sales", run_id: str = "dag/run") -> JobSpec:
    return JobSpec(
        pipeline=pipeline,
        run_id=run_id,
        plan_id="0a",
        planned_at_ms=1_700_000_000_000,
        target="/lake/sales",
        source=SourceSpec("jdbc:db2://db2.example:50000/SALES", "SALES", pipeline, "ASNCDC"),
        capture_position=CapturePosition(lsn(9), "2026-01-01T00:00:00", "2026-01-01T00:00:01", 1.0),
        tables=tuple(table_task(name) for name in names),
    )


def table_result(name: str, status: Status = "applied", upto: int = 9, **values: Any) -> TableResult:
    usual: dict[str, Any] = {"lsn": lsn(upto), "batch": 1, "after": lsn(1), "commit_ts_ms": 1_700_000_000_000}
    usual["log_id"] = "log"
    return TableResult(TableId("SALES", name), status, **{**usual, **values})


def job_result(
    *tables: TableResult,
    pipeline: str = "sales",
    signals: Iterable[SignalOutcome] = (),
    snapshots: Iterable[SnapshotProgress] = (),
    notifications: Iterable[Notification] = (),
    **more: Any,
) -> JobResult:
    return JobResult(pipeline, "dag/run", tables, tuple(signals), tuple(snapshots), tuple(notifications), **more)


UNTOUCHED: dict[str, Any] = {
    "action": "execute-snapshot", "known_tables": [], "tables": [], "type": None, "conditions": [], "surrogate_key": "",
    "all_failed": False,
}  # fmt: skip
"""What the trigger form sends where nobody has touched it."""
