"""Statements on the log of commits, IBMSNAP_UOW: where the source's clock was set back, and what a moment ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from airflow_provider_db2cdc.cdc.capture.source_clock import ClockChange, SourceClock
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sql.changes import COMMIT, within
from airflow_provider_db2cdc.sql.query import Query
from airflow_provider_db2cdc.sql.quoting import lsn_literal, quote_table, text_literal

LOCAL_TIME = "IBMSNAP_LOGMARKER"


def first_commits(asn_schema: str, change: ClockChange) -> Query:
    """Return the select of each minute that a clock change repeats: the minute, and its first commit."""
    return Query(
        f"SELECT MINUTE({LOCAL_TIME}), MIN({COMMIT}) FROM {_units_of_work(asn_schema)} WHERE {_repeated(change)} "
        f"GROUP BY MINUTE({LOCAL_TIME})"
    )


def second_pass(asn_schema: str, change: ClockChange, limits: Mapping[int, Lsn]) -> Query:
    """Return the select of the first commit after the clock was set back. It is null if there is none.

    `limits` are those of `second_pass_limits`.
    """
    passed = " OR ".join(
        f"(MINUTE({LOCAL_TIME}) = {minute} AND {COMMIT} > {lsn_literal(limit)})" for minute, limit in limits.items()
    )
    return Query(f"SELECT MIN({COMMIT}) FROM {_units_of_work(asn_schema)} WHERE {_repeated(change)} AND ({passed})")


def last_commits(asn_schema: str, span: LsnRange, clock: SourceClock, moment: datetime) -> Query:
    """Return the select of the last commit in a range whose time is at or before a moment (in UTC), then of the last.

    Each is null if there is none. The last commit is the greatest, because times may be slightly out of order. The
    range keeps the statement from reading the whole log of commits.
    """
    is_before = f"{LOCAL_TIME} <= {_local_time(clock, moment)}"
    return Query(
        f"SELECT MAX(CASE WHEN {is_before} THEN {COMMIT} END), MAX({COMMIT}) FROM {_units_of_work(asn_schema)} "
        f"WHERE {within(span)}"
    )


def first_commit_time(asn_schema: str, after: Lsn) -> Query:
    """Return the select of the first commit after a position, and of its local time. There may be no row."""
    return Query(
        f"SELECT {COMMIT}, {LOCAL_TIME} FROM {_units_of_work(asn_schema)} WHERE {COMMIT} > {lsn_literal(after)} "
        f"ORDER BY {COMMIT} FETCH FIRST 1 ROW ONLY"
    )


def _local_time(clock: SourceClock, moment: datetime) -> str:
    """Return the expression for the local time of a moment (in UTC) by the offset that counts for a commit.

    It is the rule of `SourceClock.offset_at`: the last change before the commit decides.
    """

    def local(offset_s: int) -> str:
        return _timestamp((moment + timedelta(seconds=offset_s)).isoformat(timespec="microseconds"))

    cases = [f"WHEN {_is_before(change)} THEN {local(change.offset_s)}" for change in reversed(clock.changes)]
    return f"CASE {' '.join(cases)} ELSE {local(clock.offset_s)} END" if cases else local(clock.offset_s)


def _is_before(change: ClockChange) -> str:
    """Return the condition that a clock change was before a commit, as `ClockChange.is_before` has it."""
    is_after = f"{LOCAL_TIME} >= {_timestamp(change.end)}"
    if not change.is_set_back or change.first_commit is None:
        return is_after
    return f"({is_after} OR ({_repeated(change)} AND {COMMIT} >= {lsn_literal(change.first_commit)}))"


def _repeated(change: ClockChange) -> str:
    return f"{LOCAL_TIME} >= {_timestamp(change.begin)} AND {LOCAL_TIME} < {_timestamp(change.end)}"


def _timestamp(iso: str) -> str:
    return f"TIMESTAMP({text_literal(iso.replace('T', ' '))})"


def _units_of_work(asn_schema: str) -> str:
    return quote_table(TableId(asn_schema, "IBMSNAP_UOW"))
