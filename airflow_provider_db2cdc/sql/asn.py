"""Statements on the control tables of SQL Replication: registrations, fences, clocks, counts of changes."""

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
"""Ranges whose changes one statement counts; a database limits how long and how deep a statement may be."""


def registrations(asn_schema: str) -> Query:
    """Return the select of every registered source, the base one (SOURCE_VIEW_QUAL 0) before its views.

    Columns: SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, STATE, STATE_INFO, CHG_UPD_TO_DEL_INS, BEFORE_IMG_PREFIX,
    CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT, and, the same in each row, CAPTURE_FIRST_SEQ: a cold start of the agent
    changes it, and it is null before the first start. By a subselect rather than a join: that would hold a row of the
    one table while it waits for one of the other, where the server has readers wait for writers, as the agent is one.
    """
    return Query(
        "SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, STATE, STATE_INFO, CHG_UPD_TO_DEL_INS, "
        "BEFORE_IMG_PREFIX, CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT, "
        f"(SELECT MAX(CAPTURE_FIRST_SEQ) FROM {_control(asn_schema, 'IBMSNAP_RESTART')}) AS CAPTURE_FIRST_SEQ "
        f"FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} WHERE GLOBAL_RECORD <> 'Y' "
        "ORDER BY SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL"
    )


def pruned_upto(asn_schema: str) -> Query:
    """Return the select of how far each source may be pruned: SOURCE_OWNER, SOURCE_TABLE, CD_OLD_SYNCHPOINT."""
    return Query(
        "SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OLD_SYNCHPOINT "
        f"FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} WHERE GLOBAL_RECORD <> 'Y' AND SOURCE_VIEW_QUAL = 0"
    )


def capture_conditions(asn_schema: str) -> Query:
    """Return the select of what the agent silently insists on before it captures a registered table.

    Columns: SOURCE_OWNER, SOURCE_TABLE, OPTION_FLAGS, the number of its IBMSNAP_PRUNCNTL rows.
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
    """Return the select of the agent's own row: SYNCHPOINT and SYNCHTIME, the source's local time it has reached."""
    return Query(
        f"SELECT SYNCHPOINT, SYNCHTIME FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} WHERE GLOBAL_RECORD = 'Y'"
    )


def passed(asn_schema: str, clock: str) -> Query:
    """Return the select of the agent's SYNCHPOINT once it has passed a moment of the source's clock, no row before."""
    return Query(
        f"SELECT SYNCHPOINT FROM {_control(asn_schema, 'IBMSNAP_REGISTER')} "
        f"WHERE GLOBAL_RECORD = 'Y' AND SYNCHTIME > TIMESTAMP({text_literal(clock)})"
    )


def capture_position(asn_schema: str) -> Query:
    """Return the select of one row that says how far everything is captured; never to be run uncommitted (UR).

    Columns: SYNCHPOINT of the global row, the greatest CD_NEW_SYNCHPOINT of an active registration (a stopped one may
    keep an old agent's), SYNCHTIME of the global row, the source's clock.
    """
    return Query(
        "SELECT MAX(CASE WHEN GLOBAL_RECORD = 'Y' THEN SYNCHPOINT END), "
        "MAX(CASE WHEN GLOBAL_RECORD <> 'Y' AND STATE = 'A' THEN CD_NEW_SYNCHPOINT END), "
        "MAX(CASE WHEN GLOBAL_RECORD = 'Y' THEN SYNCHTIME END), CURRENT TIMESTAMP "
        f"FROM {_control(asn_schema, 'IBMSNAP_REGISTER')}"
    )


def count_changes(steps: Sequence[tuple[CaptureRegistration, LsnRange]], *more: str) -> Query:
    """Return the select of how many change rows each range holds: the step's place in `steps`, then the count.

    `more` are selects of the same two columns.
    """
    counts = (
        f"SELECT {place} AS PLACE, {count_of()} AS CHANGES FROM {change_table(capture)} WHERE {within(span)}"
        for place, (capture, span) in enumerate(steps)
    )
    return Query(" UNION ALL ".join((*counts, *more)))


TRACES = (-1, -2, -3, -4)
"""The places of what `traces` selects."""


def traces(asn_schema: str, capture: CaptureRegistration, commit: Lsn, at: datetime) -> tuple[str, ...]:
    """Return selects of what is left of a commit that was applied: a place of `TRACES`, then a number.

    In order: its rows in the change table, its rows in IBMSNAP_UOW, those of the latter that have its time (to the
    millisecond), and how many of the two tables hold an older commit. Each walks an index on the commit alone.
    """
    of, uow, literal = change_table(capture), _control(asn_schema, "IBMSNAP_UOW"), lsn_literal(commit)
    own, begin, end = f"{COMMIT} = {literal}", *(_clock(at + timedelta(milliseconds=more)) for more in (0, 1))
    older = f"CASE WHEN MIN({COMMIT}) < {literal} THEN 1 ELSE 0 END"
    rows, units, same_time, before = TRACES
    return (
        f"SELECT {rows} AS PLACE, {count_of()} AS CHANGES FROM {of} WHERE {own}",
        f"SELECT {units} AS PLACE, {count_of()} AS CHANGES FROM {uow} WHERE {own}",
        f"SELECT {same_time} AS PLACE, {count_of()} AS CHANGES FROM {uow} "
        f"WHERE {own} AND IBMSNAP_LOGMARKER >= {begin} AND IBMSNAP_LOGMARKER < {end}",
        *(f"SELECT {before} AS PLACE, {older} AS CHANGES FROM {table}" for table in (of, uow)),
    )


def last_commit_before(capture: CaptureRegistration, span: LsnRange) -> Query:
    """Return the select of the last commit in the range that lies before its end; null when there is none."""
    return Query(
        f"SELECT MAX({COMMIT}) FROM {change_table(capture)} "
        f"WHERE {COMMIT} > {lsn_literal(span.after)} AND {COMMIT} < {lsn_literal(span.upto)}"
    )


def probe(table: TableId) -> Query:
    """Return a select that fails exactly when the table may not be read; it reads no row and waits for no lock."""
    return Query(f"SELECT 1 FROM {quote_table(table)} WHERE 1 = 0")


def _clock(at: datetime) -> str:
    return f"TIMESTAMP({text_literal(at.isoformat(sep=' ', timespec='microseconds'))})"


def _control(asn_schema: str, name: str) -> str:
    return quote_table(TableId(asn_schema, name))
