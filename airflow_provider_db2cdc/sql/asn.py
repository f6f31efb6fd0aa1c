"""Statements on the control tables of SQL Replication: registrations, capture position, clocks, counts of changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sql.changes import COMMIT, change_table, within
from airflow_provider_db2cdc.sql.query import Query, count_of
from airflow_provider_db2cdc.sql.quoting import lsn_literal, quote_table, text_literal

COUNTED_AT_ONCE = 50
"""The most ranges whose changes one statement counts. Db2 limits the length and depth of a statement."""


def registrations(asn_schema: str) -> Query:
    """Return the select of every registered source, the table (SOURCE_VIEW_QUAL 0) before its views.

    Columns: SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, STATE, STATE_INFO, CHG_UPD_TO_DEL_INS, BEFORE_IMG_PREFIX,
    CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT, CAPTURE_FIRST_SEQ. The last one is the same in each row. A cold start of the
    agent changes it, and before the first start it is null.

    It comes from a subselect, because a join would hold a row of one table while it waits for a row of the other. That
    happens on servers where readers wait for writers such as the agent.
    """
    return Query(
        "SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, STATE, STATE_INFO, CHG_UPD_TO_DEL_INS, "
        "BEFORE_IMG_PREFIX, CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT, "
        f"(SELECT MAX(CAPTURE_FIRST_SEQ) FROM {_control(asn_schema, 'IBMSNAP_RESTART')}) AS CAPTURE_FIRST_SEQ "
        f"FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} WHERE GLOBAL_RECORD <> 'Y' "
        "ORDER BY SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL"
    )


def pruned_upto(asn_schema: str) -> Query:
    """Return the select of the LSN up to which each source may be pruned.

    Columns: SOURCE_OWNER, SOURCE_TABLE, CD_OLD_SYNCHPOINT.
    """
    return Query(
        "SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OLD_SYNCHPOINT "
        f"FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} WHERE GLOBAL_RECORD <> 'Y' AND SOURCE_VIEW_QUAL = 0"
    )


def capture_conditions(asn_schema: str) -> Query:
    """Return the select of the conditions without which the agent silently skips a registered table.

    Columns: SOURCE_OWNER, SOURCE_TABLE, OPTION_FLAGS, the number of the table's rows in IBMSNAP_PRUNCNTL.
    """
    return Query(
        "SELECT R.SOURCE_OWNER, R.SOURCE_TABLE, R.OPTION_FLAGS, COUNT(P.SOURCE_TABLE) "
        f"FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} R "
        f"LEFT JOIN {_control(asn_schema, 'IBMSNAP_PRUNCNTL')} P ON P.SOURCE_OWNER = R.SOURCE_OWNER "
        "AND P.SOURCE_TABLE = R.SOURCE_TABLE AND P.SOURCE_VIEW_QUAL = R.SOURCE_VIEW_QUAL "
        "WHERE R.GLOBAL_RECORD <> 'Y' AND R.SOURCE_VIEW_QUAL = 0 "
        "GROUP BY R.SOURCE_OWNER, R.SOURCE_TABLE, R.OPTION_FLAGS"
    )


def source_clock() -> Query:
    """Return the select of the source's local time."""
    return Query("SELECT CURRENT TIMESTAMP FROM SYSIBM.SYSDUMMY1")


def global_row(asn_schema: str) -> Query:
    """Return the select of the agent's own row: SYNCHPOINT and SYNCHTIME.

    SYNCHTIME is the source's local time up to which the agent has captured.
    """
    return Query(
        f"SELECT SYNCHPOINT, SYNCHTIME FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} WHERE GLOBAL_RECORD = 'Y'"
    )


def passed(asn_schema: str, clock: str) -> Query:
    """Return the select of the agent's SYNCHPOINT after it has passed a time of the source's clock.

    Before that there is no row.
    """
    return Query(
        f"SELECT SYNCHPOINT FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} "
        f"WHERE GLOBAL_RECORD = 'Y' AND SYNCHTIME > TIMESTAMP({text_literal(clock)})"
    )


def capture_position(asn_schema: str) -> Query:
    """Return the select of the capture position, in one row. It must not run with isolation UR (uncommitted read).

    Columns: SYNCHPOINT of the global row, the greatest CD_NEW_SYNCHPOINT of an active registration, SYNCHTIME of the
    global row, the source's clock, CURRENT TIMEZONE. A stopped registration does not count, because it may keep an old
    agent's value.
    """
    return Query(
        "SELECT MAX(CASE WHEN GLOBAL_RECORD = 'Y' THEN SYNCHPOINT END), "
        "MAX(CASE WHEN GLOBAL_RECORD <> 'Y' AND STATE = 'A' THEN CD_NEW_SYNCHPOINT END), "
        "MAX(CASE WHEN GLOBAL_RECORD = 'Y' THEN SYNCHTIME END), "
        "CURRENT TIMESTAMP, CURRENT TIMEZONE "
        f"FROM {_control(asn_schema, 'IBMSNAP_REGISTER')}"
    )


def count_changes(ranges: Sequence[tuple[CaptureRegistration, LsnRange]], *more: str) -> Query:
    """Return the select of how many change rows each range holds: its place in `ranges`, then the count.

    `more` are selects of the same two columns.
    """
    counts = (
        f"SELECT {place} AS PLACE, {count_of()} AS CHANGES FROM {change_table(capture)} WHERE {within(span)}"
        for place, (capture, span) in enumerate(ranges)
    )
    return Query(" UNION ALL ".join((*counts, *more)))


TRACES = (-1, -2, -3, -4)
"""The places of the rows that `traces` selects."""


def traces(asn_schema: str, capture: CaptureRegistration, commit: Lsn, times: Sequence[datetime]) -> tuple[str, ...]:
    """Return selects of what is left of an applied commit: a place of `TRACES`, then a number.

    The numbers are, in order:

    1. the commit's rows in the change table
    2. its rows in IBMSNAP_UOW
    3. those of its rows in IBMSNAP_UOW that have one of its local `times`, to the millisecond
    4. how many of the two tables hold an older commit

    Each select only reads an index on the commit.
    """
    changes, uow, literal = change_table(capture), _control(asn_schema, "IBMSNAP_UOW"), lsn_literal(commit)
    is_commit = f"{COMMIT} = {literal}"
    has_time = " OR ".join(f"({_within_a_millisecond(time)})" for time in times) or "1 = 0"
    older = f"CASE WHEN MIN({COMMIT}) < {literal} THEN 1 ELSE 0 END"
    rows, units, same_time, before = TRACES
    return (
        f"SELECT {rows} AS PLACE, {count_of()} AS CHANGES FROM {changes} WHERE {is_commit}",
        f"SELECT {units} AS PLACE, {count_of()} AS CHANGES FROM {uow} WHERE {is_commit}",
        f"SELECT {same_time} AS PLACE, {count_of()} AS CHANGES FROM {uow} WHERE {is_commit} AND ({has_time})",
        *(f"SELECT {before} AS PLACE, {older} AS CHANGES FROM {table}" for table in (changes, uow)),
    )


def last_commit_before(capture: CaptureRegistration, span: LsnRange) -> Query:
    """Return the select of the last commit in the range before its end. It is null if there is none."""
    return Query(
        f"SELECT MAX({COMMIT}) FROM {change_table(capture)} "
        f"WHERE {COMMIT} > {lsn_literal(span.after)} AND {COMMIT} < {lsn_literal(span.upto)}"
    )


def probe(table: TableId) -> Query:
    """Return a select that only fails if the table may not be read. It reads no row and waits for no lock."""
    return Query(f"SELECT 1 FROM {quote_table(table)} WHERE 1 = 0")


def _within_a_millisecond(time: datetime) -> str:
    begin, end = (_clock(time + timedelta(milliseconds=milliseconds)) for milliseconds in (0, 1))
    return f"IBMSNAP_LOGMARKER >= {begin} AND IBMSNAP_LOGMARKER < {end}"


def _clock(time: datetime) -> str:
    return f"TIMESTAMP({text_literal(time.isoformat(sep=' ', timespec='microseconds'))})"


def _control(asn_schema: str, name: str) -> str:
    return quote_table(TableId(asn_schema, name))
