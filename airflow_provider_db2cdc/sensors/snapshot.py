"""The sensor that follows a snapshot to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.channels.channel import AIRFLOW_CHANNEL
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.summary import describe_snapshot

ENDED, UNDER_WAY = ("success", "failed"), "under way"
BAD_ENDS = frozenset({"refused", "failed", "stopped"})


class Db2CdcSnapshotSensor(BaseSensorOperator):
    """Wait until a signal has come to its end. Its log and its XCom `progress` show how far the snapshot is.

    The sensor reads the summary that the pipeline's ticks store. It starts nothing, because the pipeline's own runs do
    the work.

    :param pipeline: The pipeline's name. (templated)
    :param signal_id: The signal's id, the `output` of `Db2CdcSignalOperator`. (templated)
    :param trigger_dag_id: The pipeline's DAG. (templated)
    :param trigger_run_id: The run that carries the signal, that operator's `output["trigger_run_id"]`. With both given,
        the sensor first waits until that run is over. If the run has not acted on the signal, the sensor fails.
        (templated)
    """

    template_fields: Sequence[str] = ("pipeline", "signal_id", "trigger_dag_id", "trigger_run_id")
    ui_color = "#f3e8f7"

    def __init__(
        self, *, pipeline: str, signal_id: Any, trigger_dag_id: str = "", trigger_run_id: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.signal_id = signal_id
        self.trigger_dag_id = trigger_dag_id
        self.trigger_run_id = trigger_run_id

    def poke(self, context: Context) -> bool:
        """Check once.

        :raises AirflowFailException: when the signal was refused, its snapshot failed or was stopped, or its run is
            over and has not acted on it.
        """
        id_ = str(self.signal_id or "")
        with fail_at_once():
            if not id_:
                raise SignalError("there is no signal to wait for", "Was it sent by a task before this one?")
            # Read before the outcome: the run stores the outcome before it is over.
            ended = self._ended(context)
            summary = VariableOffsetStore(self.pipeline).summary()
            for snapshot in summary.snapshots:
                if snapshot.id == id_:
                    self.log.info("%s", describe_snapshot(snapshot))
                    context["ti"].xcom_push(key="progress", value=to_data(snapshot))
            if ended == UNDER_WAY:
                self.log.info("run %s of DAG %s has not ended yet", self.trigger_run_id, self.trigger_dag_id)
                self._warn_if_paused(context)
                # Until the run is over, an outcome with this id may be that of an older signal.
                return False
            outcome = _outcome(summary, id_)
            if outcome is not None and outcome.status in BAD_ENDS:
                raise SignalError(f"signal {outcome.id} {outcome.status}: {outcome.reason}")
            if outcome is None and ended:
                raise SignalError(
                    f"run {self.trigger_run_id} of DAG {self.trigger_dag_id} is over ({ended}), and reported nothing "
                    f"on signal {id_}",
                    "See why, clear that run and then this task. If its job had acted on the signal before it died, "
                    "the pipeline's next run continues with it, and a new signal is refused.",
                )
            if outcome is not None and outcome.reason:
                self.log.info("signal %s %s: %s", outcome.id, outcome.status, outcome.reason)
        return outcome is not None and outcome.status == "done"

    def _ended(self, context: Context) -> str:
        """Return the end state of the run that carries the signal, or an empty text if no run is given."""
        if not (self.trigger_dag_id and self.trigger_run_id):
            return ""
        state = context["ti"].get_dagrun_state(self.trigger_dag_id, str(self.trigger_run_id))
        return next((end for end in ENDED if state == end), UNDER_WAY)

    def _warn_if_paused(self, context: Context) -> None:
        """Warn if the pipeline's DAG is paused, as a new DAG usually is. Its run waits until it is unpaused."""
        try:
            # Airflow's API has this since 3.2.
            is_paused = context["ti"].get_dag(self.trigger_dag_id).is_paused
        except Exception as error:
            self.log.debug("not known whether DAG %s is paused: %s", self.trigger_dag_id, error)
            return
        if is_paused:
            self.log.warning("DAG %s is paused, so the run waits: unpause it", self.trigger_dag_id)


def _outcome(summary: PipelineSummary, id_: str) -> SignalOutcome | None:
    """Return the newest outcome under the signal's id, also of another signal that came with the same id."""
    outcomes = [outcome for outcome in summary.outcomes if outcome.channel == AIRFLOW_CHANNEL]
    return next((outcome for outcome in reversed(outcomes) if outcome.id in (id_, f"{id_} #{outcome.asked}")), None)
