"""Up to which LSN a tick reads each table: change rows are counted and limited, and all end at one frontier."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.capture.gap import CommitTrace, is_pruned
from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.frontier import CandidateRange, common_frontier
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.source.catalog import read_pruned_upto
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.planning.rejected_tables import each
from airflow_provider_db2cdc.source.planning.table_plan import TablePlan
from airflow_provider_db2cdc.source.trace import AppliedCommit, trace_of
from airflow_provider_db2cdc.sql import asn
from airflow_provider_db2cdc.sql.changes import commit_at_row
from airflow_provider_db2cdc.sql.driver_error import UnreachableError
from airflow_provider_db2cdc.sql.query import Query

log = logging.getLogger(__name__)


@failpoint("count_planned_changes")
def counted(
    source: Source,
    plans: Sequence[TablePlan],
    rejected: list[RejectedTable],
    asn_schema: str,
    applied: AppliedCommit | None = None,
) -> list[TablePlan]:
    """Return the table plans with the number of their change rows.

    One statement counts up to `asn.COUNTED_AT_ONCE` tables. If it fails, one statement per table does, and a table
    whose count fails is added to `rejected`. Rows that were pruned before are not counted, so the pruning position is
    read after the count. The first statement also looks up the commit that was `applied` last. If the source has
    another history by now, all plans of known tables become `source_restored`.
    """
    if not any(map(_is_open, plans)):
        return [_with_rows(plan, {}) for plan in plans]
    counted_plans, trace = _counted(source, plans, rejected, () if applied is None else applied.selects(asn_schema))
    floors = read_pruned_upto(source, asn_schema)
    plans = [_with_floor(plan, floors.get(plan.table) or plan.capture.pruned_upto) for plan in counted_plans]
    if applied is None or trace is None or not trace.is_foreign(applied.commit, floors.get(applied.capture.table)):
        return plans
    return [replace(plan, source_restored=True, is_due=True) if plan.is_known else plan for plan in plans]


def _counted(
    source: Source, plans: Sequence[TablePlan], rejected: list[RejectedTable], more: Sequence[str]
) -> tuple[list[TablePlan], CommitTrace | None]:
    """Return the table plans with their rows, and the trace that the `more` selects give.

    The trace is None if the tables were counted one by one.
    """
    unknown = [plan for plan in plans if _is_open(plan)]
    counts: dict[TableId, int] = {}
    trace_rows: list[tuple[int, int]] = []
    try:
        for start in range(0, len(unknown), asn.COUNTED_AT_ONCE):
            group = unknown[start : start + asn.COUNTED_AT_ONCE]
            rows = source.rows(asn.count_changes(_spans(group), *(() if start else more)))
            counts |= {group[place].table: int(count) for place, count in rows if place >= 0}
            trace_rows += rows if not start else ()
    except UnreachableError:
        raise
    except SourceError:
        return each(plans, lambda plan: _with_rows(plan, _count(source, plan)), rejected), None
    return [_with_rows(plan, counts) for plan in plans], trace_of(trace_rows)


def bounded(
    source: Source, plans: Sequence[TablePlan], max_rows: int, rejected: list[RejectedTable], asn_schema: str
) -> list[TablePlan]:
    """Return the table plans within the row limit and with aligned ends. Plans whose end moved are counted again."""
    limited = each(plans, lambda plan: _limited(source, plan, max_rows), rejected)
    return counted(source, _aligned(limited), rejected, asn_schema)


def _count(source: Source, plan: TablePlan) -> dict[TableId, int]:
    if not _is_open(plan):
        return {}
    [(_, count)] = source.rows(asn.count_changes(_spans([plan])))
    return {plan.table: int(count)}


def _spans(plans: Iterable[TablePlan]) -> list[tuple[CaptureRegistration, LsnRange]]:
    return [(plan.capture, plan.span) for plan in plans if plan.span is not None]


def _is_open(plan: TablePlan) -> bool:
    """Whether the table plan has changes that are still to be counted."""
    return plan.rows is None and plan.span is not None and not plan.span.empty


def _with_floor(plan: TablePlan, floor: Lsn | None) -> TablePlan:
    is_due = plan.is_due or (plan.stored_lsn is not None and is_pruned(plan.stored_lsn, floor))
    return replace(plan, capture=replace(plan.capture, pruned_upto=floor), is_due=is_due)


def _with_rows(plan: TablePlan, counts: dict[TableId, int]) -> TablePlan:
    return plan if plan.rows is not None else replace(plan, rows=counts.get(plan.table, 0))


def _limited(source: Source, plan: TablePlan, max_rows: int) -> TablePlan:
    """Return the table plan with its end at the last whole commit within the limit, or at its first commit."""
    if plan.span is None or not plan.rows or plan.rows <= max_rows:
        return plan
    first_beyond = source.rows(Query(commit_at_row(plan.capture, plan.span, max_rows)))
    if not first_beyond:
        return plan
    crossing = Lsn(bytes(first_beyond[0][0]))
    [(last,)] = source.rows(asn.last_commit_before(plan.capture, LsnRange(plan.span.after, crossing)))
    limited = plan.ending(Lsn(bytes(last)) if last else crossing)
    log.info("limited: table=%s range=%s rows=%s max_rows=%s", plan.table, limited.span, plan.rows, max_rows)
    return limited


def _aligned(plans: Sequence[TablePlan]) -> list[TablePlan]:
    """Return the table plans with ends that split no transaction between tables."""
    spans = [(plan.table, plan.span) for plan in plans]
    ends = common_frontier(CandidateRange(table, span.after, span.upto) for table, span in spans if span is not None)
    _warn_of_held(plans, ends)
    return [plan.ending(ends.get(plan.table, plan.upto)) for plan in plans]


def _warn_of_held(plans: Sequence[TablePlan], ends: Mapping[TableId, Lsn]) -> None:
    """Warn of limited tables that hold others back. At last, pruning overtakes the tables that are held back."""
    held = [plan.table for plan in plans if ends.get(plan.table, plan.upto) < plan.upto]
    # A limited table has no rows yet: it is to be counted again.
    limited = [plan.table for plan in plans if held and plan.rows is None and plan.upto == ends[held[0]]]
    if limited:
        log.warning(
            "limited: %s reached max.rows.per.batch, so %d other tables stop at %s too. If that is so each time, let "
            "ticks run more often, raise the limit, or give the table a pipeline of its own",
            shortened(limited),
            len(held),
            ends[held[0]],
        )
