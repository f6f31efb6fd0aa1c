"""The emulated capture agent: it fills change tables and moves the synchpoints, round by round."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_db2cdc.errors import CaptureStoppedError
from airflow_provider_db2cdc.sandbox.capture import agent_control, capture_round, control_tables
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute, fetch
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import UpdateAs, load_journals
from airflow_provider_db2cdc.sandbox.protocol.prepared import PreparedConnection

log = logging.getLogger(__name__)

_FIRST_ROUND = 4096
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_POLL_S = 0.02


@dataclass(frozen=True)
class CaptureOptions:
    """How the agent captures.

    `commit_interval_s` None means IBMSNAP_CAPPARMS.COMMIT_INTERVAL, read when the agent starts. `lsn_bytes` (16 or 10)
    counts when the database is new. `update_as` and `before_images` are for registrations that do not say otherwise.
    """

    commit_interval_s: float | None = 1.0
    lsn_bytes: int = 16
    update_as: UpdateAs = "DI"
    before_images: bool = False


class CaptureAgent:
    """A capture agent on its own connection.

    All its state is in the database. An agent that starts continues where the last one ended, as after a warm start.
    Two agents at the same time take turns.
    """

    def __init__(self, dsn: str, options: CaptureOptions | None = None) -> None:
        self.options = options or CaptureOptions()
        self._dsn = dsn
        self._connection: Connection | None = None

    def install(self) -> None:
        """Create what capture needs (schemas, control tables, functions, views) and set the options; may be repeated.

        Raises:
            ConfigurationError: the database was made by another version of the sandbox.
        """
        connection = self._connection = self._connection or _connect(self._dsn)
        control_tables.install(connection)
        with control_tables.changing_capture(connection):
            agent_control.write(connection, "update_as", self.options.update_as)
            agent_control.write(connection, "before_images", "on" if self.options.before_images else None)
            _ensure_start(connection, self.options.lsn_bytes)
        _prepare_server(connection)

    def round(self, max_rows: int = capture_round.MAX_ROWS) -> int:
        """Capture once and return how many rows went to change tables; `faults.pause` does not hold this back."""
        return self._round(max_rows).rows

    def run_forever(self, stop: threading.Event) -> None:
        """Capture once per commit interval until `stop` is set; after an error, connect again with growing pauses."""
        failures = 0
        while not stop.is_set():
            try:
                interval_s = self._interval_s()
                while not stop.is_set():
                    captured = self._round(capture_round.MAX_ROWS, heed_pause=True)
                    failures = 0
                    stop.wait(0 if captured.more else interval_s)
            except Exception as error:  # ibm_db raises Exception itself for a lost connection
                pause_s = _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
                failures += 1
                log.warning("capture round failed: attempt=%s retry_in_s=%s error=%s", failures, pause_s, error)
                self.close()
                stop.wait(pause_s)
        self.close()

    def close(self) -> None:
        """Close the agent's connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except Exception as error:
            log.debug("capture connection did not close: error=%s", error)

    def _round(self, max_rows: int, heed_pause: bool = False) -> capture_round.Captured:
        started = time.monotonic()
        captured = capture_round.capture(self._connected(), max_rows, heed_pause=heed_pause)
        if captured.rows:
            log.info("captured: rows=%s more=%s took_s=%.3f", captured.rows, captured.more, time.monotonic() - started)
        return captured

    def _interval_s(self) -> float:
        if self.options.commit_interval_s is not None:
            return self.options.commit_interval_s
        rows = fetch(self._connected(), "SELECT COMMIT_INTERVAL FROM ASNCDC.IBMSNAP_CAPPARMS")
        return float(rows[0][0])

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = _connect(self._dsn)
            _prepare_server(self._connection)
        return self._connection


def await_captured(connection: Connection, timeout_s: float = 30.0) -> bytes:
    """Wait until all that was committed before this call is in the change tables; return the synchpoint that covers it.

    Ends the connection's own transaction (commit) first.

    Raises:
        CaptureStoppedError: the agent is stopped, paused, or needs longer than the time limit.
    """
    connection.commit()
    ((now,),) = fetch(connection, "VALUES CURRENT_TIMESTAMP")
    deadline = time.monotonic() + timeout_s
    while True:
        reached = fetch(
            connection,
            "SELECT SYNCHPOINT, SYNCHTIME FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'",
        )
        connection.commit()
        if reached and reached[0][1] > now:
            return bytes(reached[0][0])
        if time.monotonic() > deadline:
            raise _late(now, reached[0][1] if reached else None, timeout_s)
        time.sleep(_POLL_S)


def _late(wanted: datetime, reached: datetime | None, timeout_s: float) -> CaptureStoppedError:
    return CaptureStoppedError(
        f"capture has reached {reached}, not {wanted}, after {timeout_s} s",
        "Start or resume the agent, or end its lag: SANDBOX.CONTROL has the switches.",
    )


def _ensure_start(connection: Connection, lsn_bytes: int) -> None:
    rows = fetch(connection, "SELECT LENGTH(MAX_COMMITSEQ) FROM ASNCDC.IBMSNAP_RESTART")
    if rows:
        if rows[0][0] != lsn_bytes:
            log.warning("lsn width stays as the database has it: bytes=%s wanted=%s", rows[0][0], lsn_bytes)
        return
    execute(
        connection,
        "INSERT INTO ASNCDC.IBMSNAP_RESTART SELECT P, T, P, T, P FROM (SELECT SANDBOX.LSN(?, SANDBOX.TICK(), ?), "
        "CURRENT_TIMESTAMP FROM SYSIBM.SYSDUMMY1) S (P, T)",
        _FIRST_ROUND,
        lsn_bytes,
    )
    execute(
        connection,
        "INSERT INTO ASNCDC.IBMSNAP_REGISTER (SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL, GLOBAL_RECORD, "
        "SOURCE_STRUCTURE, SOURCE_CONDENSED, SOURCE_COMPLETE, DISABLE_REFRESH, ARCH_LEVEL, OPTION_FLAGS, STATE, "
        "SYNCHPOINT, SYNCHTIME) SELECT '', '', 0, 'Y', 1, 'Y', 'Y', 0, '1021', 'NNNN', 'A', MAX_COMMITSEQ, "
        "CURR_COMMIT_TIME FROM ASNCDC.IBMSNAP_RESTART",
    )


def _connect(dsn: str) -> Connection:
    connection = PreparedConnection(dsn)
    execute(connection, "SET CURRENT ISOLATION = UR")
    connection.commit()
    return connection


def _prepare_server(connection: Connection) -> None:
    """Do what has to be done since Derby was started, and commit; a new connection may mean a new server."""
    sources = [
        "SELECT MAX(SANDBOX.LSN_TICK(MAX_COMMITSEQ)) FROM ASNCDC.IBMSNAP_RESTART",
        "SELECT MAX(SINCE) FROM SANDBOX.JOURNAL",
        *(f"SELECT MAX(IBMSNAP_SEQ) FROM {journal.name}" for journal in load_journals(connection)),
    ]
    seen = [row[0] for source in sources for row in fetch(connection, source) if row[0] is not None]
    execute(connection, f"CALL SANDBOX.RAISE_TICK({max(map(int, seen))})")
    execute(connection, "CALL SANDBOX.PREPARE_SERVER()")
    control_tables.compile_triggers(connection)
