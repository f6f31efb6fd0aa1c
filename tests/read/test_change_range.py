"""Ranges of a change log, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.job_samples import lsn

from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.read import BatchRange, LsnRange, TimeRange, asset_event_range

NOON, ONE = (datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (12, 13))


def extra(first: int, last: int, log_id: str = "log") -> dict[str, Any]:
    return {"from_batch": first, "to_batch": last, "log_id": log_id, "rows": 1}


def test_range_of_an_asset_event() -> None:
    assert asset_event_range(extra(3, 5)) == BatchRange(3, 5, "log")


def test_range_of_several_events_spans_them_in_any_order() -> None:
    events = [extra(5, 9), None, {}, {"from_rest_api": True}, extra(2, 5)]
    assert asset_event_range(*events) == BatchRange(2, 9, "log")


@pytest.mark.parametrize("extras", [(), (None,), ({"from_batch": 1},)])
def test_events_without_a_range_are_refused(extras: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"no asset event has a range.*table_asset"):
        asset_event_range(*extras)


def test_events_of_two_change_logs_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="different change logs"):
        asset_event_range(extra(1, 2), extra(2, 3, "other"))


@pytest.mark.parametrize(
    "make",
    [lambda: BatchRange(5, 4), lambda: LsnRange(str(lsn(5)), str(lsn(4))), lambda: TimeRange(ONE, NOON)],
)
def test_a_range_that_ends_before_it_begins_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="ends before it begins"):
        make()


def test_a_range_may_be_empty_or_open() -> None:
    for made in (BatchRange(5, 5), BatchRange(5), LsnRange(), LsnRange(lsn(3), lsn(3)), TimeRange(NOON, NOON)):
        assert made
    assert LsnRange(str(lsn(3)), lsn(4)).ends == (lsn(3), lsn(4))


def test_a_text_must_be_an_lsn_and_a_time_needs_a_zone() -> None:
    with pytest.raises(OffsetError, match="'x' is not an LSN"):
        LsnRange("x")
    for ends in ((datetime(2026, 1, 1), None), (NOON, datetime(2026, 1, 2))):
        with pytest.raises(ConfigurationError, match="no time zone"):
            TimeRange(*ends)
