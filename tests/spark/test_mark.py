"""High marks that are asked of the source's clock."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.spark.jdbc import DriverConnection
from airflow_provider_db2cdc.spark.mark import ReadOnlyMark

SYNCHPOINT = "00000000:00001023:0000365278b906b3"


class Clocks(DriverConnection):
    """A connection that knows two times: the source's, and up to when capture has passed."""

    def __init__(self, now: str, captured: str) -> None:
        super().__init__(jvm=None, connection=None)
        self.now, self.captured = now, captured

    def text_rows(self, select: str) -> list[list[str | None]]:
        return [[SYNCHPOINT, self.captured]] if "IBMSNAP_REGISTER" in select else [[self.now]]


def test_a_read_is_passed_once_capture_is_behind_the_clock_of_its_end() -> None:
    clocks = Clocks("2026-10-25 01:00:05.000001", "2026-10-25 01:00:00.000000")
    marks = ReadOnlyMark(clocks, "ASNCDC")
    mark = marks.close(marks.open())
    assert marks.reached(mark) is None
    clocks.captured = "2026-10-25 01:00:06.000000"
    assert marks.reached(mark) == Lsn.parse(SYNCHPOINT)


def test_a_clock_that_was_set_back_marks_nothing() -> None:
    """Capture lags: it stands before summer time's end, which the read has seen, so it would be passed at once."""
    clocks = Clocks("2026-10-25 02:00:05.000001", "2026-10-25 02:59:50.000001")
    marks = ReadOnlyMark(clocks, "ASNCDC")
    with pytest.raises(SourceError, match="it was set back"):
        marks.close(marks.open())
