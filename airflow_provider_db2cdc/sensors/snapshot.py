"""Following a snapshot to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.channels.channel import AIRFLOW_CHANNEL
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.summary import describe_snapshot

BAD_ENDS = frozenset({"refused", "failed", "stopped"})


class Db2CdcSnapshotSensor(BaseSensorOperator):
    """Wait until a signal has come to its end; say, and keep in the XCom `progress`, how far its snapshot is.

    It looks at what the pipeline's ticks leave behind and starts nothing: the pipeline's own runs do the work.

    :param pipeline: The pipeline's name. (templated)
    :param signal_id: The signal's id, the `output` of `Db2CdcSignalOperator`. (templated)
    """

    template_fields: Sequence[str] = ("pipeline", "signal_id")
    ui_color = "#f3e8f7"

    def __init__(self, *, pipeline: str, signal_id: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.signal_id = signal_id

    def poke(self, context: Context) -> bool:
        """Look once.

        :raises AirflowFailException: the signal was refused, or its snapshot failed or was stopped.
        """
        id_ = str(self.signal_id or "")
        with fail_at_once():
            if not id_:
                raise SignalError("there is no signal to wait for", "Was it sent by a task before this one?")
            backlog = VariableOffsetStore(self.pipeline).backlog()
            for snapshot in backlog.snapshots:
                if snapshot.id == id_:
                    self.log.info("%s", describe_snapshot(snapshot))
                    context["ti"].xcom_push(key="progress", value=to_data(snapshot))
            outcome = next((one for one in backlog.outcomes if (one.channel, one.id) == (AIRFLOW_CHANNEL, id_)), None)
            if outcome is not None and outcome.status in BAD_ENDS:
                raise SignalError(f"signal {outcome.id} {outcome.status}: {outcome.reason}")
        return outcome is not None and outcome.status == "done"
