"""Statements that find the commits of an interval in the source's log of commits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from airflow_provider_db2cdc.cdc.capture.source_clock import ClockChange, SourceClock
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sql.changes import COMMIT
from airflow_provider_db2cdc.sql.query import Query
from airflow_provider_db2cdc.sql.quoting import lsn_literal, quote_table, text_literal

LOCAL_TIME = "IBMSNAP_LOGMARKER"


def last_commits(asn_schema: str, clock: SourceClock, times: Sequence[datetime]) -> Query:
    """Return the select of the last commit at or before each of the times (UTC, without a zone), in one row.

    A column is null if the log of commits has no commit from before its time.
    """
    ends = ", ".join(f"MAX(CASE WHEN {LOCAL_TIME} <= {_local(clock, time)} THEN {COMMIT} END)" for time in times)
    return Query(f"SELECT {ends} FROM {_units_of_work(asn_schema)}")


def first_commit_time(asn_schema: str, after: Lsn) -> Query:
    """Return the select of the first commit after a position, and of its local time. There may be no row."""
    return Query(
        f"SELECT {COMMIT}, {LOCAL_TIME} FROM {_units_of_work(asn_schema)} WHERE {COMMIT} > {lsn_literal(after)} "
        f"ORDER BY {COMMIT} FETCH FIRST 1 ROW ONLY"
    )


def _local(clock: SourceClock, time: datetime) -> str:
    """Return the expression of the local time that a moment had, by the clock of the commit of a row."""
    text = _timestamp(time + timedelta(seconds=clock.offset_s))
    newest_first = reversed(clock.changes)
    cases = " ".join(
        f"WHEN {_is_before(change)} THEN {_timestamp(time + timedelta(seconds=change.offset_s))}"
        for change in newest_first
    )
    return f"CASE {cases} ELSE {text} END" if cases else text


def _is_before(change: ClockChange) -> str:
    """Return whether a clock change was before a commit, as `ClockChange.is_before` says."""
    begin, end = (_timestamp(datetime.fromisoformat(text)) for text in (change.begin, change.end))
    if change.first_commit is None:
        return f"{LOCAL_TIME} >= {end}"
    is_second_pass = f"{LOCAL_TIME} >= {begin} AND {COMMIT} >= {lsn_literal(change.first_commit)}"
    return f"({LOCAL_TIME} >= {end} OR ({is_second_pass}))"


def _timestamp(time: datetime) -> str:
    return f"TIMESTAMP({text_literal(time.isoformat(sep=' ', timespec='microseconds'))})"


def _units_of_work(asn_schema: str) -> str:
    return quote_table(TableId(asn_schema, "IBMSNAP_UOW"))
