"""The offsets of a pipeline that never ran."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId


class NoOffsets:
    """The offsets of a pipeline that never ran: `KnownOffsets`."""

    def get(self, table: TableId) -> Offset | None:
        """Return no offset."""
        return None

    def summary(self) -> PipelineSummary:
        """Return an empty summary."""
        return PipelineSummary()
