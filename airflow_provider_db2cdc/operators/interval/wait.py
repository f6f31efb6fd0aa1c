"""The wait of a plan until capture has passed the end of the run's data interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.offset.store import OffsetReader
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.offsets.keyed import Document
from airflow_provider_db2cdc.operators.failure import LASTING_NAMES
from airflow_provider_db2cdc.triggers.change import Db2CdcChangeTrigger

NEEDED = {"pipeline", "target", "asn_schema", "time_zone", "capture_stale_after_s"}
"""What the trigger needs of the configuration."""


def passing_trigger(
    db2_conn_id: str, config: PipelineConfig, offsets: OffsetReader, interval: DataInterval, poll_s: float
) -> Db2CdcChangeTrigger:
    """Return the trigger that fires once capture has passed the end of an interval. It has no deadline.

    The summary has what earlier plans know of the source's clock.
    """
    texts: dict[Document, str | None] = {"summary": offsets.summary().to_json()}
    needed = config.model_dump(mode="json", include=NEEDED)
    return Db2CdcChangeTrigger(db2_conn_id, needed, texts, interval.end, poll_s, None)


def check_event(event: Mapping[str, Any]) -> None:
    """Check that a wait has ended because capture has passed the end of the interval.

    :raises AirflowFailException: the wait ended with an error that a retry cannot mend.
    :raises AirflowException: the wait ended with another error, for one because capture stands still.
    """
    if event["status"] == "come":
        return
    kind = AirflowFailException if event.get("error") in LASTING_NAMES else AirflowException
    raise kind(event["message"])
