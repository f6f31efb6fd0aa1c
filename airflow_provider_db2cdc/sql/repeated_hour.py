"""Statements that find, in the log of commits, where the source's clock was set back."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_db2cdc.cdc.capture.source_clock import ClockChange
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sql.changes import COMMIT
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


def _repeated(change: ClockChange) -> str:
    begin, end = (f"TIMESTAMP({text_literal(text.replace('T', ' '))})" for text in (change.begin, change.end))
    return f"{LOCAL_TIME} >= {begin} AND {LOCAL_TIME} < {end}"


def _units_of_work(asn_schema: str) -> str:
    return quote_table(TableId(asn_schema, "IBMSNAP_UOW"))
