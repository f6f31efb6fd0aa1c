"""Marks: how a snapshot learns that capture has passed the moment that it begins behind, and that of its read.

High: `open` before the read, `close` after it, then `reached` until it says an LSN: every commit that the read can have
seen is at or below it, and all of them are captured. Low: `low_mark`, then `reached` likewise.
"""

from __future__ import annotations

from uuid import uuid4

from airflow_provider_db2cdc.cdc.job import Watermarking
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import SignalTable
from airflow_provider_db2cdc.errors import ConfigurationError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.sql import asn
from airflow_provider_db2cdc.sql.signal import WINDOW_CLOSE, WINDOW_OPEN, captured_mark, delete_mark, insert_mark
from airflow_provider_db2cdc.tick.log import describe
from airflow_provider_db2cdc.tick.ports import Watermark


def watermark(
    kind: Watermarking, connection: DriverConnection, asn_schema: str, signals: SignalTable | None
) -> Watermark:
    """Return the way that the configuration names.

    :raises ConfigurationError: it writes into the signal table, and there is none that is captured.
    """
    if kind == "read_only":
        return ReadOnlyWatermark(connection, asn_schema)
    if signals is None or signals.capture is None:
        raise ConfigurationError(
            f"incremental.snapshot.watermarking.strategy {kind} needs a signal table that is captured",
            "Name one with signal.data.collection and register it for capture, or use read_only.",
        )
    return SignalTableWatermark(connection, asn_schema, signals, delete=kind == "insert_delete")


class ReadOnlyWatermark:
    """Writes nothing: the source's clock after the read, and the SYNCHPOINT once SYNCHTIME has passed it.

    The greatest synchpoint right after the read is no mark: capture lags behind.
    """

    def __init__(self, connection: DriverConnection, asn_schema: str) -> None:
        self._connection = connection
        self._asn_schema = asn_schema

    def low_mark(self, planned: str) -> str:
        """Return the planned clock, else the source's by now."""
        return planned or self.close(self.open())

    def open(self) -> str:
        """Mark nothing."""
        return ""

    @failpoint("close_watermark")
    def close(self, opened: str) -> str:
        """Return the source's clock.

        :raises SourceError: it stands before what capture has passed, so it was set back (as summer time's end does).
        """
        _, captured = self._connection.text_rows(asn.global_row(self._asn_schema).text)[0]
        clock = self._connection.text_rows(asn.source_clock().text)[0][0] or ""
        if captured and clock < captured:
            raise SourceError(
                f"the source's clock says {clock}, and capture has passed {captured}: it was set back, or is not "
                "the clock that the capture agent goes by",
                "The next tick reads again. If it stays so, set incremental.snapshot.watermarking.strategy to "
                "insert_insert, which asks no clock.",
            )
        return clock

    def reached(self, mark: str) -> Lsn | None:
        """Return the SYNCHPOINT once capture has passed that time."""
        rows = self._connection.text_rows(asn.passed(self._asn_schema, mark).text)
        return Lsn.parse(rows[0][0]) if rows and rows[0][0] else None


class SignalTableWatermark:
    """Writes into the captured signal table, as Debezium does: two rows, or one that is deleted again."""

    def __init__(self, connection: DriverConnection, asn_schema: str, signals: SignalTable, delete: bool) -> None:
        self._connection = connection
        self._asn_schema = asn_schema
        self._signals = signals
        self._delete = delete

    def low_mark(self, planned: str) -> str:
        """Write a mark of its own: whoever has chosen this way may have a source whose clock is not the agent's."""
        return self.close(self.open())

    def open(self) -> str:
        """Insert the row that opens the window.

        :raises SourceError: the signal table takes no row.
        """
        mark = str(uuid4())
        self._write(insert_mark(self._signals, f"{mark}-open", WINDOW_OPEN))
        return mark

    @failpoint("close_watermark")
    def close(self, opened: str) -> str:
        """Insert the row that closes the window, or delete the one that opened it.

        :raises SourceError: the signal table does not let it.
        """
        if self._delete:
            self._write(delete_mark(self._signals, f"{opened}-open"))
        else:
            self._write(insert_mark(self._signals, f"{opened}-close", WINDOW_CLOSE))
        return opened

    def reached(self, mark: str) -> Lsn | None:
        """Return the commit of the closing row once it is captured, and everything up to it with it."""
        name, operation = (f"{mark}-open", "D") if self._delete else (f"{mark}-close", "I")
        [[commit]] = self._connection.text_rows(captured_mark(self._signals, name, operation))
        if not commit:
            return None
        synchpoint = self._connection.text_rows(asn.global_row(self._asn_schema).text)[0][0]
        closed = Lsn.parse(commit)
        return closed if synchpoint and closed <= Lsn.parse(synchpoint) else None

    def _write(self, statement: str) -> None:
        try:
            self._connection.execute(statement)
        except Exception as error:
            kind = "insert_delete" if self._delete else "insert_insert"
            raise SourceError(
                f"incremental.snapshot.watermarking.strategy {kind} cannot write its mark into the signal table "
                f"{self._signals.table}: {describe(error)}",
                "Grant the job's user INSERT and DELETE on it, or set read_only, which writes nothing.",
            ) from error
