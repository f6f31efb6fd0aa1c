"""The plan of a verification: which tables it compares, and which ones it cannot compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.job import SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY as KEY_PROPERTY
from airflow_provider_db2cdc.cdc.selection.select_override import PROPERTY as SELECT_PROPERTY
from airflow_provider_db2cdc.cdc.selection.select_override import selects_of
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId, TableSchema
from airflow_provider_db2cdc.cdc.verify.document import VerifySpec
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.catalog import read_capture, read_schemas
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.planning.named_tables import named_tables
from airflow_provider_db2cdc.source.planning.plan import check_moving, nothing_chosen
from airflow_provider_db2cdc.source.planning.rejected_tables import each
from airflow_provider_db2cdc.source.planning.signals import plan_signal_table
from airflow_provider_db2cdc.source.preflight.table_requirements import require


@dataclass(frozen=True)
class VerifyRequest:
    """What is to be verified: tables by name (none: all), and how.

    `id` is that of the verification. A verification that has begun under it continues.
    """

    id: str
    tables: Sequence[str] = ()
    quick: bool = False
    show_keys: bool = False
    budget_s: float | None = None


def plan_verification(source: Source, config: PipelineConfig, request: VerifyRequest) -> VerifySpec:
    """Plan a verification and return its spec. It only reads.

    Without named tables, those that cannot be compared are excluded.

    :raises ConfigurationError: when a named table is not one of the pipeline, or cannot be compared.
    :raises CaptureStoppedError: when the agent never ran, or has not moved for `capture_stale_after_s`.
    :raises SourceError: when Db2 cannot be reached or read.
    """
    captured = read_capture(source, config.asn_schema)
    check_moving(captured.position, config)
    chosen = [captured.registrations[table] for table in config.selection.tables(captured.registrations)]
    if not chosen:
        raise nothing_chosen(config.asn_schema)
    schemas = read_schemas(source, chosen, config.selection)
    reasons = _reasons(config, schemas, request.quick)
    named = named_tables(request.tables, schemas, "verify")
    _check_comparable(named, reasons)
    wanted = [capture for capture in chosen if capture.table in (named or schemas)]
    rejected: list[RejectedTable] = []
    tasks = each(
        [capture for capture in wanted if capture.table not in reasons],
        partial(_task, config, schemas, captured.position.lsn),
        rejected,
    )
    return VerifySpec(
        config.pipeline,
        request.id,
        config.target,
        SourceSpec(source.jdbc_url, source.database, config.server_name, config.asn_schema),
        tuple(tasks),
        config.settings,
        request.quick,
        request.show_keys,
        request.budget_s,
        excluded=tuple(reasons[capture.table] for capture in wanted if capture.table in reasons),
        signal_table=plan_signal_table(source, config, captured, rejected),
        rejected=tuple(rejected),
    )


def _check_comparable(named: Sequence[TableId], reasons: Mapping[TableId, RejectedTable]) -> None:
    for table in named:
        if table in reasons:
            raise ConfigurationError(f"{table} cannot be verified: {reasons[table].error}")


def _reasons(
    config: PipelineConfig, schemas: Mapping[TableId, TableSchema], quick: bool
) -> dict[TableId, RejectedTable]:
    """Return why some tables can never be compared."""
    selects = selects_of(config.snapshot_overrides, schemas.keys())
    reasons = {}
    for table, schema in schemas.items():
        if table in selects:
            reasons[table] = (
                f"its snapshots read a select of {SELECT_PROPERTY}, so its target need not have the rows of the table. "
                "Compare it with that select by a query of your own"
            )
        elif not schema.key and not quick:
            reasons[table] = (
                "it has no key, so its rows cannot be matched one by one. Compare its counts (--quick), or name "
                f"columns whose values are unique with {KEY_PROPERTY} ('{name_of(table)}:<column>,<column>')"
            )
    return {table: RejectedTable(table, f"{reason}.") for table, reason in reasons.items()}


def _task(
    config: PipelineConfig, schemas: Mapping[TableId, TableSchema], upto: Lsn, capture: CaptureRegistration
) -> TableTask:
    require(capture, schemas[capture.table], config)
    return TableTask(schemas[capture.table], capture, None, upto, 0)
