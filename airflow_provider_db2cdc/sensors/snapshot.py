"""Following a snapshot to its end."""

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
    """Wait until a signal has come to its end; say, and keep in the XCom `progress`, how far its snapshot is.

    It looks at what the pipeline's ticks leave behind and starts nothing: the pipeline's own runs do the work.

    :param pipeline: The pipeline's name. (templated)
    :param signal_id: The signal's id, the `output` of `Db2CdcSignalOperator`. (templated)
    :param trigger_dag_id: The pipeline's DAG. (templated)
    :param trigger_run_id: The run that carries the signal, that operator's `output["trigger_run_id"]`. With both given
        the sensor waits until that run is over, and no longer where it has not acted on the signal then. (templated)
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
        """Look once.

        :raises AirflowFailException: the signal was refused, its snapshot failed or was stopped, or its run is over
            without having acted on it.
        """
        id_ = str(self.signal_id or "")
        with fail_at_once():
            if not id_:
                raise SignalError("there is no signal to wait for", "Was it sent by a task before this one?")
            # Before its outcome, which the run keeps before it is over.
            ended = self._ended(context)
            summary = VariableOffsetStore(self.pipeline).summary()
            for snapshot in summary.snapshots:
                if snapshot.id == id_:
                    self.log.info("%s", describe_snapshot(snapshot))
                    context["ti"].xcom_push(key="progress", value=to_data(snapshot))
            if ended == UNDER_WAY:
                self.log.info("run %s of DAG %s has not ended yet", self.trigger_run_id, self.trigger_dag_id)
                self._tell_paused(context)
                # What stands under its id by now may be what became of an older signal.
                return False
            outcome = _outcome(summary, id_)
            if outcome is not None and outcome.status in BAD_ENDS:
                raise SignalError(f"signal {outcome.id} {outcome.status}: {outcome.reason}")
            if outcome is None and ended:
                raise SignalError(
                    f"run {self.trigger_run_id} of DAG {self.trigger_dag_id} is over ({ended}), and told nothing of "
                    f"signal {id_}",
                    "See why, clear that run and then this task. If its job had acted on the signal before it died, "
                    "the pipeline's next run goes on with it, and asking anew is refused.",
                )
            if outcome is not None and outcome.reason:
                self.log.info("signal %s %s: %s", outcome.id, outcome.status, outcome.reason)
        return outcome is not None and outcome.status == "done"

    def _ended(self, context: Context) -> str:
        """Return the end state of the run that carries the signal, empty where that is not known."""
        if not (self.trigger_dag_id and self.trigger_run_id):
            return ""
        state = context["ti"].get_dagrun_state(self.trigger_dag_id, str(self.trigger_run_id))
        return next((end for end in ENDED if state == end), UNDER_WAY)

    def _tell_paused(self, context: Context) -> None:
        """Say that the pipeline's DAG is paused, as a new one mostly is: until somebody turns it on its run waits."""
        try:
            # Airflow's API tells it since 3.2.
            is_paused = context["ti"].get_dag(self.trigger_dag_id).is_paused
        except Exception as error:
            self.log.debug("not known whether DAG %s is paused: %s", self.trigger_dag_id, error)
            return
        if is_paused:
            self.log.warning("DAG %s is paused, so the run waits: unpause it", self.trigger_dag_id)


def _outcome(summary: PipelineSummary, id_: str) -> SignalOutcome | None:
    """Return what became of the signal, or of the newest one that came under its id and asked for something else."""
    heard = [one for one in summary.outcomes if one.channel == AIRFLOW_CHANNEL]
    return next((one for one in reversed(heard) if one.id in (id_, f"{id_} #{one.asked}")), None)
