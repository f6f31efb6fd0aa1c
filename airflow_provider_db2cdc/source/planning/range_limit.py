"""How far each table goes: its change rows counted, the row limit, and one frontier for all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.capture.gap import CommitTrace, is_pruned
from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.job import RejectedTable
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.frontier import CandidateRange, common_frontier
from airflow_provider_db2cdc.cdc.table import TableId
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
    steps: Sequence[TablePlan],
    refused: list[RejectedTable],
    asn_schema: str,
    applied: AppliedCommit | None = None,
) -> list[TablePlan]:
    """Return the steps with their rows, from one statement; where that fails, from one a table.

    Rows that were pruned beforehand are not counted, so how far that went is asked for behind it. The one statement
    also looks up what was `applied` last: where the source has another history by now, all steps are `restored`.
    """
    if not any(map(_is_open, steps)):
        return [_with_rows(step, {}) for step in steps]
    found, trace = _counted(source, steps, refused, () if applied is None else applied.selects(asn_schema))
    floors = read_pruned_upto(source, asn_schema)
    found = [_with_floor(step, floors.get(step.table) or step.capture.pruned_upto) for step in found]
    if applied is None or trace is None or not trace.is_foreign(applied.commit, floors.get(applied.capture.table)):
        return found
    return [step if step.stored_lsn is None else replace(step, source_restored=True, is_due=True) for step in found]


def _counted(
    source: Source, steps: Sequence[TablePlan], refused: list[RejectedTable], more: Sequence[str]
) -> tuple[list[TablePlan], CommitTrace | None]:
    """Return the steps with their rows, and what `more` selects have found; None where tables were asked one by one."""
    unknown = [step for step in steps if _is_open(step)]
    counts: dict[TableId, int] = {}
    found: list[tuple[int, int]] = []
    try:
        for start in range(0, len(unknown), asn.COUNTED_AT_ONCE):
            group = unknown[start : start + asn.COUNTED_AT_ONCE]
            rows = source.rows(asn.count_changes(_spans(group), *(() if start else more)))
            counts |= {group[place].table: int(count) for place, count in rows if place >= 0}
            found += rows if not start else ()
    except UnreachableError:
        raise
    except SourceError:
        return each(steps, lambda step: _with_rows(step, _count(source, step)), refused), None
    return [_with_rows(step, counts) for step in steps], trace_of(found)


def bounded(
    source: Source, steps: Sequence[TablePlan], max_rows: int, refused: list[RejectedTable], asn_schema: str
) -> list[TablePlan]:
    """Return the steps within the row limit, their ends aligned, and counted anew where that moved them."""
    limited = each(steps, lambda step: _limited(source, step, max_rows), refused)
    return counted(source, _aligned(limited), refused, asn_schema)


def _count(source: Source, step: TablePlan) -> dict[TableId, int]:
    if not _is_open(step):
        return {}
    [(_, count)] = source.rows(asn.count_changes(_spans([step])))
    return {step.table: int(count)}


def _spans(steps: Iterable[TablePlan]) -> list[tuple[CaptureRegistration, LsnRange]]:
    return [(step.capture, step.span) for step in steps if step.span is not None]


def _is_open(step: TablePlan) -> bool:
    """Whether the step has changes that are to be counted."""
    return step.rows is None and step.span is not None and not step.span.empty


def _with_floor(step: TablePlan, floor: Lsn | None) -> TablePlan:
    is_due = step.is_due or (step.stored_lsn is not None and is_pruned(step.stored_lsn, floor))
    return replace(step, capture=replace(step.capture, pruned_upto=floor), is_due=is_due)


def _with_rows(step: TablePlan, counts: dict[TableId, int]) -> TablePlan:
    return step if step.rows is not None else replace(step, rows=counts.get(step.table, 0))


def _limited(source: Source, step: TablePlan, max_rows: int) -> TablePlan:
    """Return the step cut behind the last whole commit within the limit, or behind its first commit."""
    if step.span is None or not step.rows or step.rows <= max_rows:
        return step
    behind = source.rows(Query(commit_at_row(step.capture, step.span, max_rows)))
    if not behind:
        return step
    crossing = Lsn(bytes(behind[0][0]))
    [(last,)] = source.rows(asn.last_commit_before(step.capture, LsnRange(step.span.after, crossing)))
    limited = step.ending(Lsn(bytes(last)) if last else crossing)
    log.info("limited: table=%s range=%s rows=%s max_rows=%s", step.table, limited.span, step.rows, max_rows)
    return limited


def _aligned(steps: Sequence[TablePlan]) -> list[TablePlan]:
    """Return the steps with the ends that cut no transaction between tables."""
    spans = [(step.table, step.span) for step in steps]
    ends = common_frontier(CandidateRange(table, span.after, span.upto) for table, span in spans if span is not None)
    _tell_held(steps, ends)
    return [step.ending(ends.get(step.table, step.upto)) for step in steps]


def _tell_held(steps: Sequence[TablePlan], ends: Mapping[TableId, Lsn]) -> None:
    """Say which limited tables keep others back: those fall behind with them, at last beyond what pruning leaves."""
    held = [step.table for step in steps if ends.get(step.table, step.upto) < step.upto]
    # What was limited is to be counted anew.
    limited = [step.table for step in steps if held and step.rows is None and step.upto == ends[held[0]]]
    if limited:
        log.warning(
            "limited: %s reached max.rows.per.batch, so %d other tables stop at %s too. If that is so each time, let "
            "ticks run more often, raise the limit, or give the table a pipeline of its own",
            ", ".join(map(str, limited)),
            len(held),
            ends[held[0]],
        )
