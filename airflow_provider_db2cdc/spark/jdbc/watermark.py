"""Watermarks: show a snapshot that capture has passed its beginning (low), and the end of its read (high).

For the high watermark call `open` before the read, `close` after it, then `reached` until it returns an LSN.
Every commit that the read can have seen is at or below that LSN, and is captured.
For the low watermark call `low_mark`, then `reached` in the same way.
"""

from __future__ import annotations

from uuid import uuid4

from airflow_provider_db2cdc.cdc.job import Watermarking
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import SignalTable
from airflow_provider_db2cdc.errors import ConfigurationError, SourceError
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.sql import asn
from airflow_provider_db2cdc.sql.signal import WINDOW_CLOSE, WINDOW_OPEN, captured_mark, delete_mark, insert_mark
from airflow_provider_db2cdc.tick.log import describe
from airflow_provider_db2cdc.tick.ports import Watermark


def watermark(
    kind: Watermarking, connection: DriverConnection, asn_schema: str, signals: SignalTable | None
) -> Watermark:
    """Return the watermark that the configuration names.

    :raises ConfigurationError: when it writes into the signal table, and no captured signal table is set.
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
    """A watermark that writes nothing: the source's clock, and the SYNCHPOINT once SYNCHTIME has passed that clock.

    The greatest synchpoint right after the read cannot serve as the mark: capture lags, and is not there yet.
    """

    def __init__(self, connection: DriverConnection, asn_schema: str) -> None:
        self._connection = connection
        self._asn_schema = asn_schema

    def low_mark(self, planned: str) -> str:
        """Return the planned clock, or the source's current one if that is empty."""
        return planned or self.close(self.open())

    def open(self) -> str:
        """Return an empty text: this watermark needs no mark before a read."""
        return ""

    def close(self, opened: str) -> str:
        """Return the source's clock.

        :raises SourceError: when the clock is before the time that capture has passed. Then the clock was set back,
            as at the end of summer time, or is not the agent's.
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
        """Return the SYNCHPOINT once capture has passed the time of the mark, else None."""
        rows = self._connection.text_rows(asn.passed(self._asn_schema, mark).text)
        return Lsn.parse(rows[0][0]) if rows and rows[0][0] else None


class SignalTableWatermark:
    """A watermark that writes into the captured signal table, as Debezium does.

    It inserts two rows, or inserts one and deletes it again (`delete`).
    """

    def __init__(self, connection: DriverConnection, asn_schema: str, signals: SignalTable, delete: bool) -> None:
        self._connection = connection
        self._asn_schema = asn_schema
        self._signals = signals
        self._delete = delete

    def low_mark(self, planned: str) -> str:
        """Write a mark and return it. The planned clock is not used: here the agent may run by another clock."""
        return self.close(self.open())

    def open(self) -> str:
        """Insert the row that opens the window and return its id.

        :raises SourceError: when the signal table refuses the row.
        """
        mark = str(uuid4())
        self._write(insert_mark(self._signals, f"{mark}-open", WINDOW_OPEN))
        return mark

    def close(self, opened: str) -> str:
        """Insert the row that closes the window, or delete the one that opened it.

        :raises SourceError: when the signal table refuses that.
        """
        if self._delete:
            self._write(delete_mark(self._signals, f"{opened}-open"))
        else:
            self._write(insert_mark(self._signals, f"{opened}-close", WINDOW_CLOSE))
        return opened

    def reached(self, mark: str) -> Lsn | None:
        """Return the commit of the closing write once it, and everything up to it, is captured; else None."""
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
