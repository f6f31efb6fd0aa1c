"""What can go wrong between a Db2 and its reader, switched on by name.

Faults of a registration need no switch. `asn.addtable` takes U rows and before images. `asn.addcolumn` follows an ALTER
TABLE. `CaptureOptions.lsn_bytes` makes 10-byte LSNs. Every function commits.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_db2cdc.sandbox.capture import agent_control, control_tables
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute, fetch, quoted
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import Journal, load_journals


@dataclass(frozen=True)
class Pruned:
    """What a prune took away: all up to this COMMITSEQ (None: there was nothing), so many rows of change tables."""

    upto: bytes | None
    rows: int


def pause(connection: Connection) -> None:
    """Stop capture as a stopped agent does: no change appears and SYNCHTIME stands still, until `resume`."""
    _switch(connection, "paused", "on")


def resume(connection: Connection) -> None:
    """Let capture continue where it stopped (a warm start)."""
    _switch(connection, "paused", None)


def lag(connection: Connection, seconds: float) -> None:
    """Keep capture this far back in time. Only older changes appear, and SYNCHTIME shows that. Zero ends it."""
    _switch(connection, "lag_s", str(seconds) if seconds else None)


def missing_uow(connection: Connection, on: bool = True) -> None:
    """Write no rows into IBMSNAP_UOW from now on (or again), as an agent does that runs with these inserts off."""
    _switch(connection, "missing_uow", "on" if on else None)


def prune(connection: Connection, upto: bytes | None = None, retention_s: float | None = None) -> Pruned:
    """Delete captured changes from the start of the log, whether read or not, and move CD_OLD_SYNCHPOINT there.

    Up to a COMMITSEQ, that one included, or up to the last commit older than the retention; by default all of them.
    """
    with control_tables.changing_capture(connection):
        last = _last_commit(connection, retention_s) if upto is None else upto
        if last is None:
            return Pruned(None, 0)
        journals = load_journals(connection)
        rows = sum(_prune_table(connection, journal, last) for journal in journals)
        execute(connection, "DELETE FROM ASNCDC.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ <= ?", last)
        return Pruned(last, rows)


def cold_start(connection: Connection) -> None:
    """Start capture from the end of the log. Change tables and UOW are emptied, and changes not captured yet are lost.

    COMMITSEQs still ascend. IBMSNAP_RESTART begins again (CAPTURE_FIRST_SEQ), and tables' synchpoints are NULL again.
    """
    with control_tables.changing_capture(connection):
        for journal in load_journals(connection):
            execute(connection, f"DELETE FROM {quoted(*journal.change_table)}")
        execute(connection, "DELETE FROM ASNCDC.IBMSNAP_UOW")
        execute(connection, "UPDATE SANDBOX.JOURNAL SET SINCE = SANDBOX.TICK()")
        execute(
            connection,
            "UPDATE ASNCDC.IBMSNAP_REGISTER SET CD_OLD_SYNCHPOINT = NULL, CD_NEW_SYNCHPOINT = NULL "
            "WHERE GLOBAL_RECORD = 'N'",
        )
        # a round number of its own, so that whatever comes later is higher
        execute(
            connection,
            "UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHTIME = CURRENT_TIMESTAMP, SYNCHPOINT = (SELECT SANDBOX.LSN("
            "SANDBOX.LSN_ROUND(MAX_COMMITSEQ) + 1, SANDBOX.TICK(), LENGTH(MAX_COMMITSEQ)) FROM ASNCDC.IBMSNAP_RESTART) "
            "WHERE GLOBAL_RECORD = 'Y'",
        )
        execute(connection, "DELETE FROM ASNCDC.IBMSNAP_RESTART")
        execute(
            connection,
            "INSERT INTO ASNCDC.IBMSNAP_RESTART SELECT SYNCHPOINT, SYNCHTIME, SYNCHPOINT, SYNCHTIME, SYNCHPOINT "
            "FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'",
        )


def set_state(connection: Connection, schema: str, table: str, state: str) -> None:
    """Set a registration's STATE: S (what the agent sets after an error) and I stop capture, A starts it from now on.

    Raises:
        RegistrationError: the table is not registered.
    """
    with control_tables.changing_capture(connection):
        journal = control_tables.registered(connection, schema, table)
        execute(
            connection,
            "UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = ?, STATE_INFO = ? WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ? "
            "AND SOURCE_VIEW_QUAL = 0",
            state,
            "ASN0005E" if state == "S" else None,
            *journal.source,
        )


def reregister(connection: Connection, schema: str, table: str) -> None:
    """Remove a table from capture and register it again, as a repair does. Its captured changes are gone.

    Raises:
        RegistrationError: the table is not registered.
    """
    journal = control_tables.registered(connection, schema, table)
    control_tables.removetable(connection, schema, table)
    options = control_tables.RegistrationOptions(
        journal.update_as, journal.prefix, journal.columns, *journal.change_table
    )
    control_tables.addtable(connection, schema, table, options)


def _switch(connection: Connection, name: str, value: str | None) -> None:
    with control_tables.changing_capture(connection):
        agent_control.write(connection, name, value)


def _last_commit(connection: Connection, retention_s: float | None) -> bytes | None:
    if retention_s is None:
        rows = fetch(connection, "SELECT SYNCHPOINT FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'")
    else:
        rows = fetch(
            connection,
            "SELECT MAX(IBMSNAP_COMMITSEQ) FROM ASNCDC.IBMSNAP_UOW WHERE SANDBOX.TIME_TICK(IBMSNAP_LOGMARKER) "
            "<= SANDBOX.TIME_TICK(CURRENT_TIMESTAMP) - CAST(? AS BIGINT)",
            int(retention_s * 1_000_000),
        )
    return bytes(rows[0][0]) if rows and rows[0][0] is not None else None


def _prune_table(connection: Connection, journal: Journal, upto: bytes) -> int:
    rows = execute(connection, f"DELETE FROM {quoted(*journal.change_table)} WHERE IBMSNAP_COMMITSEQ <= ?", upto)
    execute(
        connection,
        "UPDATE ASNCDC.IBMSNAP_REGISTER SET CD_OLD_SYNCHPOINT = ? WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ? "
        "AND SOURCE_VIEW_QUAL = 0 AND (CD_OLD_SYNCHPOINT IS NULL OR CD_OLD_SYNCHPOINT < ?)",
        upto,
        *journal.source,
        upto,
    )
    return rows
