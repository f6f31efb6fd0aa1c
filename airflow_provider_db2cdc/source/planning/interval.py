"""The end of a tick's changes: the capture position and the row limit, or the end of the run's data interval."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.capture.interval import PROPERTY, CapturedTime, DataInterval
from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.table import RejectedTable
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.planning.range_limit import bounded, counted
from airflow_provider_db2cdc.source.planning.table_plan import TablePlan
from airflow_provider_db2cdc.sql.units_of_work import last_commits

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunEnd:
    """What decides where a run's changes end: its data interval, if it has one, and how far capture is."""

    interval: DataInterval | None
    captured: CapturedTime

    def check(self, config: PipelineConfig) -> None:
        """Check that the run's changes can end at its interval.

        :raises ConfigurationError: the run has an interval, and the pipeline's runs do not end there.
        :raises CaptureBehindError: capture has not passed the interval's end.
        """
        if self.interval is None:
            return
        if config.end_at != "interval":
            raise ConfigurationError(
                f"the run's changes would end at {self.interval.end}, and {PROPERTY} is {config.end_at}",
                f"Set {PROPERTY}=interval, or run it without an end.",
            )
        self.captured.check_passed(self.interval)


def ended(
    source: Source, config: PipelineConfig, end: RunEnd, plans: Sequence[TablePlan], rejected: list[RejectedTable]
) -> tuple[list[TablePlan], Lsn | None]:
    """Return the table plans with the end of each, and the last commit of the run's interval.

    The latter is None if the interval has no commit after the offsets. Within an interval no row limit counts, because
    the rest would go to the next run.
    """
    if config.end_at == "fence":
        return bounded(source, plans, config.max_rows_per_batch, rejected, config.asn_schema), None
    lsn = find_end(source, config.asn_schema, end, plans)
    limited = counted(source, [up_to(plan, lsn) for plan in plans], rejected, config.asn_schema)
    for plan in limited:
        if (plan.rows or 0) > config.max_rows_per_batch:
            log.info("not limited: table=%s rows=%s. An interval is one batch", plan.table, plan.rows)
    return limited, lsn


def find_end(source: Source, asn_schema: str, end: RunEnd, plans: Sequence[TablePlan]) -> Lsn | None:
    """Ask the source for the last commit of the run's interval after the least of the offsets.

    If no later commit is captured, it is the capture position. So the offsets of a quiet source move too, and pruning
    does not overtake them.
    """
    if end.interval is None:
        return None
    position = end.captured.position.lsn
    nothing_read = Lsn(bytes(len(position.raw)))
    after = min((plan.span.after for plan in plans if plan.span is not None), default=nothing_read)
    [row] = source.rows(last_commits(asn_schema, LsnRange(after, position), end.captured.clock, end.interval.end_utc))
    last, newest = (None if commit is None else Lsn(bytes(commit)) for commit in row)
    return position if last == newest else last


def up_to(plan: TablePlan, lsn: Lsn | None) -> TablePlan:
    """Return a table's plan that ends at the last commit of an interval, or at its offset if that is later or None.

    A new table begins at the capture position nevertheless. So does a table before whose offset capture stands: the
    tick has to find out why.
    """
    if plan.span is None:
        return plan
    return plan.ending(plan.span.after if lsn is None else max(plan.span.after, min(plan.upto, lsn)))


def idle_reason(config: PipelineConfig, end: RunEnd, lsn: Lsn | None, plans: Sequence[TablePlan]) -> str:
    """Return why a tick has nothing to do. `lsn` is the last commit of its interval."""
    if config.end_at == "fence":
        return "nothing new up to the capture position"
    if end.interval is None:
        return f"{PROPERTY} is interval, and this run has no data interval: it only carries snapshots, and has none"
    beyond = [f"{plan.table} at {plan.stored_lsn}" for plan in plans if lsn is None or (plan.stored_lsn or lsn) > lsn]
    listed = shortened(beyond)
    if lsn is None or len(beyond) == len(plans):
        return (
            f"IBMSNAP_UOW has no commit between the offsets ({listed}) and the end of the data interval, "
            f"{end.interval.end}: a run of a later interval has carried the interval's commits, or it has none"
        )
    others = f" (beyond it: {listed})" if beyond else ""
    return f"nothing new up to the end of the data interval, {end.interval.end}{others}"
