"""Changes that a verification cannot see: what that means for it."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError


def unverifiable(table: TableId, gap: GapError) -> GapError:
    """Return the error of a table that cannot be compared, because changes since its state are lost at the source."""
    problem = gap.problem.removeprefix(f"{table}: ")
    return GapError(
        f"{table} cannot be verified now, because its changes since the last tick cannot be read: {problem}",
        "Run a tick of the pipeline first. If that reports a gap, do as it says.",
    )
