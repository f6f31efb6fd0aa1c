"""The times of commits in UTC, as `cdc.capture.source_clock` computes them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.capture.source_clock import ClockChange, SourceClock


def utc_us(clock: SourceClock) -> Column:
    """Return the microseconds since the epoch of a commit, from its columns `commit` (LSN) and `local` (timestamp).

    The session's time zone must be UTC: it then has local times as they are written.
    """
    offset_s = F.lit(clock.offset_s)
    for change in clock.changes:
        offset_s = F.when(_is_before(change), F.lit(change.offset_s)).otherwise(offset_s)
    return F.unix_micros("local") - offset_s.cast("bigint") * 1_000_000


def _is_before(change: ClockChange) -> Column:
    """Return whether a clock change was before a commit."""
    local, begin, end = F.col("local"), *(F.lit(text).cast("timestamp") for text in (change.begin, change.end))
    if change.first_commit is None:
        return local >= end
    return (local >= end) | ((local >= begin) & (F.col("commit") >= str(change.first_commit)))
