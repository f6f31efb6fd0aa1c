"""An offset store that only answers."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId


class ReadOnlyOffsets:
    """The offsets of a pipeline that never ran. Each write fails the test."""

    def get(self, table: TableId) -> Offset | None:
        """Return no offset."""
        return None

    def summary(self) -> PipelineSummary:
        """Return an empty summary."""
        return PipelineSummary()

    def put(self, offset: Offset) -> None:
        """Fail."""
        raise AssertionError("nothing may be written")

    def put_summary(self, summary: PipelineSummary) -> None:
        """Fail."""
        raise AssertionError("nothing may be written")
