"""One round of capture: what has committed goes to the change tables, in commit order, in one transaction.

How a round knows, without a lock on anything of the writers', what has committed and in which order:

1. It reads the clock: t0.
2. ENDED gets every transaction that has rows in a journal, read uncommitted.
3. Those that are writing are taken out of it. Derby clears the mark that `EXCLUDE_WRITERS` reads when it logs a
   transaction's end, after all undo and before it releases the locks. So every remaining transaction has ended. One
   that began after step 2 is not among them.
4. The journals are read again for those transactions: one that rolled back has no rows by now, the others all theirs.

Their highest sequence number gives their order. Under two-phase locking a transaction touches another's rows only after
that one has ended. So its number is higher, and if step 3 sees it ended, the other one has ended too. Everything that
committed before t0 is included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_db2cdc.sandbox.capture import agent_control
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute, fetch, quoted
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import Journal, load_journals

MAX_ROWS = 50_000
"""A round takes no further transaction once it has this many rows. It takes the first one whatever its size."""

_TICKS_PER_S = 1_000_000
_WORK_TABLES = ("ENDED", "PART", "UOW")


@dataclass(frozen=True)
class Captured:
    """What a round did: rows written to change tables, and whether it has left committed work for the next one."""

    rows: int = 0
    more: bool = False


@dataclass(frozen=True)
class _Start:
    """How far capture is when a round begins. Times are ticks (microseconds, `db2cdc.Capture.tick`)."""

    now: int
    synch: int
    commit: int
    round: int
    lsn_bytes: int


@dataclass(frozen=True)
class _Choice:
    """The transactions of a round: how many rows, the highest tick among them, the tick above which some were left."""

    rows: int
    last: int
    cut: int | None


def capture(connection: Connection, max_rows: int = MAX_ROWS, *, heed_pause: bool = False) -> Captured:
    """Run one round and commit it; an error rolls all of it back, and the next round starts from the same place.

    Under `heed_pause` a paused capture stays as it is. The connection's isolation has to be UR
    (`SET CURRENT ISOLATION = UR`): the journals hold uncommitted rows.
    """
    try:
        agent_control.lock(connection)
        switches = agent_control.read(connection)
        paused = heed_pause and switches.get("paused") == "on"
        captured = Captured() if paused else _capture(connection, switches, max_rows)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return captured


def _capture(connection: Connection, switches: dict[str, str], max_rows: int) -> Captured:
    journals = load_journals(connection)
    start = _read_start(connection)
    upto = start.now - int(float(switches.get("lag_s", "0")) * _TICKS_PER_S)
    if not _collect_ended(connection, journals):
        _advance(connection, start, synch=min(start.now, upto), chosen=None)
        return Captured()
    choice = _choose(connection, journals, start, max_rows, upto)
    if choice.rows:
        _write_changes(connection, journals, start)
    if choice.rows and switches.get("missing_uow") != "on":
        _write_uow(connection, start)
    _forget(connection, journals)
    if choice.rows:
        _write_synchpoints(connection, journals)
    # whatever was left has its last change above the cut, so it committed later than that
    synch = min(start.now, upto, start.now if choice.cut is None else choice.cut)
    _advance(connection, start, synch, choice if choice.rows else None)
    for table in _WORK_TABLES:
        execute(connection, f"DELETE FROM SANDBOX.{table}")
    return Captured(choice.rows, more=choice.cut is not None and choice.cut < upto)


def _read_start(connection: Connection) -> _Start:
    rows = fetch(
        connection,
        "SELECT SANDBOX.TIME_TICK(CURRENT_TIMESTAMP), SANDBOX.TIME_TICK(G.SYNCHTIME), "
        "SANDBOX.TIME_TICK(R.MAX_COMMIT_TIME), SANDBOX.LSN_ROUND(R.MAX_COMMITSEQ), LENGTH(R.MAX_COMMITSEQ) "
        "FROM ASNCDC.IBMSNAP_RESTART R, ASNCDC.IBMSNAP_REGISTER G WHERE G.GLOBAL_RECORD = 'Y'",
    )
    return _Start(*(int(value) for value in rows[0]))


def _collect_ended(connection: Connection, journals: Sequence[Journal]) -> bool:
    if not journals:
        return False
    written = " UNION ".join(f"SELECT DISTINCT IBMSNAP_TXN FROM {journal.name}" for journal in journals)
    if not execute(connection, f"INSERT INTO SANDBOX.ENDED {written}"):
        return False
    execute(connection, "CALL SANDBOX.EXCLUDE_WRITERS()")
    return True


def _choose(connection: Connection, journals: Sequence[Journal], start: _Start, max_rows: int, upto: int) -> _Choice:
    # all journals, whichever it was seen in: it may have written to others between the two looks
    parts = " UNION ALL ".join(
        f"SELECT {journal.id}, E.TXN, MAX(J.IBMSNAP_SEQ), "
        f"SUM(CASE WHEN J.IBMSNAP_SEQ > {journal.first_tick} THEN 1 ELSE 0 END) "
        f"{_from_journal('SANDBOX.ENDED E', journal)} AND J.IBMSNAP_TXN = E.TXN GROUP BY E.TXN"
        for journal in journals
    )
    execute(connection, f"INSERT INTO SANDBOX.PART {parts}")
    execute(
        connection,
        "INSERT INTO SANDBOX.UOW SELECT TXN, MAX(LAST_TICK), SUM(ROW_COUNT), SANDBOX.LSN(?, MAX(LAST_TICK), ?) "
        "FROM SANDBOX.PART WHERE ROW_COUNT > 0 GROUP BY TXN",
        start.round + 1,
        start.lsn_bytes,
    )
    cut = _cut(connection, max_rows, upto)
    if cut is not None:
        left = "SELECT TXN FROM SANDBOX.UOW WHERE LAST_TICK > ?"
        execute(connection, f"DELETE FROM SANDBOX.PART WHERE TXN IN ({left})", cut)
        execute(connection, "DELETE FROM SANDBOX.UOW WHERE LAST_TICK > ?", cut)
    return _Choice(*_totals(connection), cut)


def _cut(connection: Connection, max_rows: int, upto: int) -> int | None:
    """Return the tick above which transactions have to wait, or None if all may go."""
    rows, last = _totals(connection)
    cut, taken = last, 0
    if rows > max_rows:
        for tick, count in fetch(connection, "SELECT LAST_TICK, ROW_COUNT FROM SANDBOX.UOW ORDER BY LAST_TICK"):
            cut, taken = int(tick), taken + int(count)
            if taken >= max_rows:
                break
    cut = min(cut, upto)
    return cut if cut < last else None


def _totals(connection: Connection) -> tuple[int, int]:
    """Return the rows of the round's transactions and the highest tick among them."""
    rows = fetch(connection, "SELECT COALESCE(SUM(ROW_COUNT), 0), COALESCE(MAX(LAST_TICK), 0) FROM SANDBOX.UOW")
    return int(rows[0][0]), int(rows[0][1])


def _write_changes(connection: Connection, journals: Sequence[Journal], start: _Start) -> None:
    for journal in _touched(connection, journals, _CHOSEN_JOURNALS):
        names = list(journal.images())
        execute(
            connection,
            f"INSERT INTO {quoted(*journal.change_table)} (IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ, IBMSNAP_OPERATION, "
            f"{', '.join(map(quoted, names))}) SELECT U.COMMITSEQ, SANDBOX.LSN(0, J.IBMSNAP_SEQ, {start.lsn_bytes}), "
            f"J.IBMSNAP_OPERATION, {', '.join('J.' + quoted(name) for name in names)} "
            f"{_from_journal('SANDBOX.UOW U', journal)} AND J.IBMSNAP_TXN = U.TXN "
            f"AND J.IBMSNAP_SEQ > {journal.first_tick}",
        )


def _write_uow(connection: Connection, start: _Start) -> None:
    # the commit's own time is not known: not before the last change, not before what earlier rounds have said
    earliest = max(start.synch, start.commit) + 1
    execute(
        connection,
        "INSERT INTO ASNCDC.IBMSNAP_UOW (IBMSNAP_UOWID, IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER, IBMSNAP_AUTHTKN, "
        "IBMSNAP_AUTHID) SELECT CAST(SANDBOX.LSN(0, U.LAST_TICK, 10) AS CHAR(10) FOR BIT DATA), U.COMMITSEQ, "
        "SANDBOX.TICK_TIME(CASE WHEN U.LAST_TICK > CAST(? AS BIGINT) THEN U.LAST_TICK ELSE CAST(? AS BIGINT) END), "
        "'SANDBOX', SESSION_USER FROM SANDBOX.UOW U",
        earliest,
        earliest,
    )


def _forget(connection: Connection, journals: Sequence[Journal]) -> None:
    for journal in _touched(connection, journals, "SELECT DISTINCT JOURNAL FROM SANDBOX.PART"):
        execute(connection, f"CALL SANDBOX.FORGET({journal.id})")


def _write_synchpoints(connection: Connection, journals: Sequence[Journal]) -> None:
    for journal in _touched(connection, journals, _CHOSEN_JOURNALS):
        execute(
            connection,
            "UPDATE ASNCDC.IBMSNAP_REGISTER SET CD_NEW_SYNCHPOINT = (SELECT MAX(U.COMMITSEQ) FROM SANDBOX.PART P "
            "JOIN SANDBOX.UOW U ON U.TXN = P.TXN WHERE P.JOURNAL = ? AND P.ROW_COUNT > 0) "
            "WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ? AND SOURCE_VIEW_QUAL = 0",
            journal.id,
            *journal.source,
        )


def _advance(connection: Connection, start: _Start, synch: int, chosen: _Choice | None) -> None:
    # last, so that readers of the control tables wait as little as may be: Derby's wait for uncommitted rows
    synch = max(start.synch, synch)
    if chosen:
        point, parameters = "SANDBOX.LSN(?, ?, ?)", [start.round + 1, chosen.last, start.lsn_bytes]
        commit = max(start.synch + 1, start.commit + 1, chosen.last)
    else:
        point, parameters = "SANDBOX.LSN(?, SANDBOX.TICK(), ?)", [start.round, start.lsn_bytes]
        commit = start.commit
    execute(
        connection,
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHPOINT = {point}, SYNCHTIME = SANDBOX.TICK_TIME(?) "
        "WHERE GLOBAL_RECORD = 'Y'",
        *parameters,
        synch,
    )
    execute(
        connection,
        "UPDATE ASNCDC.IBMSNAP_RESTART SET MAX_COMMIT_TIME = SANDBOX.TICK_TIME(?), "
        f"CURR_COMMIT_TIME = SANDBOX.TICK_TIME(?), MAX_COMMITSEQ = {_SYNCHPOINT}, MIN_INFLIGHTSEQ = {_SYNCHPOINT}",
        commit,
        synch,
    )


def _touched(connection: Connection, journals: Sequence[Journal], select: str) -> list[Journal]:
    ids = {int(row[0]) for row in fetch(connection, select)}
    return [journal for journal in journals if journal.id in ids]


def _from_journal(transactions: str, journal: Journal) -> str:
    """Return a join that goes through the journal's index: a scan would read all open work as well."""
    return (
        f"FROM --DERBY-PROPERTIES joinOrder=FIXED\n{transactions} JOIN {journal.name} J "
        f"--DERBY-PROPERTIES joinStrategy=NESTEDLOOP, index={journal.name.split('.')[1]}X\n ON 1 = 1"
    )


_SYNCHPOINT = "(SELECT SYNCHPOINT FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y')"
_CHOSEN_JOURNALS = "SELECT DISTINCT JOURNAL FROM SANDBOX.PART WHERE ROW_COUNT > 0"
