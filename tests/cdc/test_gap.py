import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, find_recorded_gap
from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError

T = TableId("S", "T")
NOW = CaptureIdentity("ASNCDC.CD", "2024-01-01T00:00:00.000000", "2023-06-01", "00000000:00000001:0000000000000001")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


@pytest.mark.parametrize("floor", [None, 0, 4, 5])
@pytest.mark.parametrize("old", [None, NOW])
def test_an_offset_at_or_after_the_floor_has_no_gap(old: CaptureIdentity | None, floor: int | None) -> None:
    assert find_gap(CapturePoint(lsn(5), old), CapturePoint(lsn(5), NOW, None if floor is None else lsn(floor))) is None


@pytest.mark.parametrize(
    ("old", "floor", "position", "reason"),
    [
        (replace(NOW, change_table="ASNCDC.OLD"), None, 9, "registered again.*ASNCDC.OLD, now in ASNCDC.CD"),
        (replace(NOW, created="2023"), None, 9, "created again at 2024.*before: 2023"),
        (
            replace(NOW, source_created="2023-05-01"),
            None,
            9,
            "the source table was created again at 2023-06.*before: 2023-05",
        ),
        (replace(NOW, cold_start="00"), None, 9, "started cold at 00000000:00000001"),
        (NOW, 6, 9, "pruned"),
        (None, 6, 9, "pruned"),
        (NOW, None, 4, "capture stands at .*0004, before the offset"),
        (None, None, 4, "capture stands at"),
    ],
    ids=[
        "registered",
        "created",
        "source created",
        "cold start",
        "pruned",
        "pruned, unknown before",
        "restored",
        "restored, unknown",
    ],
)
def test_each_gap_is_found_with_its_reason(
    old: CaptureIdentity | None, floor: int | None, position: int, reason: str
) -> None:
    found = find_gap(CapturePoint(lsn(5), old), CapturePoint(lsn(position), NOW, None if floor is None else lsn(floor)))
    assert found is not None
    assert re.search(reason, found)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_gap_is_a_later_floor_or_an_earlier_capture_position(after: int, floor: int, position: int) -> None:
    found = find_gap(CapturePoint(lsn(after), NOW), CapturePoint(lsn(position), NOW, lsn(floor)))
    assert (found is not None) == (after < floor or position < after)


def test_a_formerly_inactive_registration_is_a_gap() -> None:
    assert find_recorded_gap(T, lsn(5), interrupted=False, restored=False) is None
    found = find_recorded_gap(T, lsn(5), interrupted=True, restored=True)
    assert found is not None
    assert "its registration was not active for a while" in found
    assert f"`db2cdc offset set S.T {lsn(5)}`" in found, "a command that there is"


def test_positions_of_another_width_are_refused() -> None:
    with pytest.raises(OffsetError, match="cannot be compared"):
        find_gap(CapturePoint(lsn(5), NOW), CapturePoint(Lsn(bytes(10)), NOW))


def test_a_floor_from_before_the_agents_level_changed_is_not_a_gap() -> None:
    assert find_gap(CapturePoint(lsn(5), NOW), CapturePoint(lsn(9), NOW, Lsn(b"\xff" * 10))) is None
