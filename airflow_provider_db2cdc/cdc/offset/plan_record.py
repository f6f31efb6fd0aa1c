"""What plans record of a pipeline as a whole. The next commit takes it into the summary."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary, TableFailure
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome


@dataclass(frozen=True)
class PlanRecord:
    """What plans have recorded since the last commit.

    `signals_in_flight_at_ms` is the time of a plan that carries signals. `outcomes` are those of signals that change
    offsets. `rejected` are the tables that the last plan without work rejected, None if there was no such plan.

    `revision` identifies it. A summary with this revision has taken it in.
    """

    revision: str = ""
    signals_in_flight_at_ms: int = 0
    outcomes: tuple[SignalOutcome, ...] = ()
    rejected: tuple[TableFailure, ...] | None = None

    def is_in(self, summary: PipelineSummary) -> bool:
        """Return whether a commit has taken it into the summary."""
        return self.revision in ("", summary.plan_revision)

    def added_to(self, summary: PipelineSummary) -> PipelineSummary:
        """Return the summary with what is recorded."""
        if self.is_in(summary):
            return summary
        named = {(outcome.channel, outcome.id): outcome for outcome in summary.outcomes}
        for outcome in self.outcomes:
            named.pop((outcome.channel, outcome.id), None)
            named[outcome.channel, outcome.id] = outcome
        # A commit that was planned later has answered the signals.
        in_flight_ms = 0 if self.signals_in_flight_at_ms <= summary.planned_at_ms else self.signals_in_flight_at_ms
        after = replace(
            summary,
            outcomes=(*named.values(),),
            signals_in_flight_at_ms=max(summary.signals_in_flight_at_ms, in_flight_ms),
            plan_revision=self.revision,
        )
        if self.rejected is None:
            return after
        return after.with_rejected({failure.table: failure.error for failure in self.rejected})
