"""High watermarks come from the source's clock, or are written into the signal table."""

from __future__ import annotations

import re

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import SignalTable
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.spark.jdbc.watermark import ReadOnlyWatermark, SignalTableWatermark

SYNCHPOINT = "00000000:00001023:0000365278b906b3"


class Clocks(DriverConnection):
    """A connection that knows two times: the source's, and up to when capture has passed."""

    def __init__(self, now: str, captured: str) -> None:
        super().__init__(jvm=None, connection=None)
        self.now, self.captured = now, captured

    def text_rows(self, select: str) -> list[list[str | None]]:
        if (passed := re.search(r"SYNCHTIME > TIMESTAMP\('(.+)'\)", select)) is not None:
            return [[SYNCHPOINT]] if self.captured > passed[1] else []
        return [[SYNCHPOINT, self.captured]] if "IBMSNAP_REGISTER" in select else [[self.now]]


def test_a_read_is_passed_once_capture_is_after_the_clock_of_its_end() -> None:
    clocks = Clocks("2026-10-25 01:00:05.000001", "2026-10-25 01:00:00.000000")
    marks = ReadOnlyWatermark(clocks, "ASNCDC")
    mark = marks.close(marks.open())
    assert marks.reached(mark) is None
    clocks.captured = "2026-10-25 01:00:06.000000"
    assert marks.reached(mark) == Lsn.parse(SYNCHPOINT)


def test_a_clock_that_was_set_back_gives_no_watermark() -> None:
    """Capture lags: its clock shows summer time, which the read saw end. So the read would be passed at once."""
    clocks = Clocks("2026-10-25 02:00:05.000001", "2026-10-25 02:59:50.000001")
    marks = ReadOnlyWatermark(clocks, "ASNCDC")
    with pytest.raises(SourceError, match="it was set back"):
        marks.close(marks.open())


@pytest.mark.parametrize(
    ("planned", "passed"), [("2026-10-25 01:00:01.000001", True), ("", False)], ids=["planned", "taken now"]
)
def test_a_planned_low_watermark_is_passed_once_capture_is_after_the_plan(planned: str, passed: bool) -> None:
    marks = ReadOnlyWatermark(Clocks("2026-10-25 01:00:05.000001", "2026-10-25 01:00:02.000000"), "ASNCDC")
    assert (marks.reached(marks.low_mark(planned)) is not None) == passed


class Signals(DriverConnection):
    """A signal table, which of its rows are captured at which commit, and a SYNCHPOINT; a write may meet an error."""

    def __init__(self, error: str = "") -> None:
        super().__init__(jvm=None, connection=None)
        self.error, self.synchpoint = error, lsn(1)
        self.written: list[str] = []
        self.captured: dict[str, str] = {}

    def execute(self, statement: str) -> None:
        if self.error:
            raise OSError(self.error)
        self.written.append(statement)

    def text_rows(self, select: str) -> list[list[str | None]]:
        if "IBMSNAP_REGISTER" in select:
            return [[self.synchpoint, "2026-10-25 01:00:00.000000"]]
        return [[next((at for place, at in self.captured.items() if place in select), None)]]


def lsn(number: int) -> str:
    return str(Lsn(number.to_bytes(16, "big")))


def inserted(connection: DriverConnection, delete: bool) -> SignalTableWatermark:
    table = TableId("S", "SIGNALS")
    identity = CaptureIdentity("ASNCDC.CDC_SIGNALS", "", "", "")
    capture = CaptureRegistration(table, "ASNCDC", "CDC_SIGNALS", "A", "", "DI", None, None, None, (), identity)
    return SignalTableWatermark(connection, "ASNCDC", SignalTable(table, ("ID", "TYPE", "DATA"), capture), delete)


@pytest.mark.parametrize("delete", [False, True], ids=["insert_insert", "insert_delete"])
def test_a_written_watermark_is_reached_once_its_end_is_captured(delete: bool) -> None:
    signals = Signals()
    marks = inserted(signals, delete)
    mark = marks.open()
    assert [statement.split()[0] for statement in signals.written] == ["INSERT"]
    # A captured beginning does not show that the rows read after it are captured.
    signals.captured[f"= 'I' AND \"ID\" = '{mark}-open'"] = lsn(5)
    signals.synchpoint = lsn(7)
    assert marks.close(mark) == mark
    assert [statement.split()[0] for statement in signals.written] == ["INSERT", "DELETE" if delete else "INSERT"]
    assert marks.reached(mark) is None
    end = f"= 'D' AND \"ID\" = '{mark}-open'" if delete else f"= 'I' AND \"ID\" = '{mark}-close'"
    signals.captured[end] = lsn(8)
    assert marks.reached(mark) is None, "not all of that commit is captured yet"
    signals.synchpoint = lsn(8)
    assert marks.reached(mark) == Lsn.parse(lsn(8))
    signals.synchpoint = lsn(9)
    assert marks.reached(mark) == Lsn.parse(lsn(8))


def test_a_low_watermark_is_also_written_if_watermarks_are_written() -> None:
    signals = Signals()
    mark = inserted(signals, delete=True).low_mark("2026-10-25 01:00:01.000001")
    assert [statement.split()[0] for statement in signals.written] == ["INSERT", "DELETE"]
    assert mark in signals.written[0]


def test_an_unwritable_watermark_names_its_table_and_a_remedy() -> None:
    with pytest.raises(
        SourceError, match=r"insert_delete .* signal table S\.SIGNALS: OSError.*Grant .* or set read_only"
    ):
        inserted(Signals("SQLCODE=-551, SQLSTATE=42501"), delete=True).open()
