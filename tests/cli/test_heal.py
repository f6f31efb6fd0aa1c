"""The signal of `db2cdc heal`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_db2cdc.cdc.selection.table_names import Condition
from airflow_provider_db2cdc.cdc.signal.request import ExecuteSnapshot, parse
from airflow_provider_db2cdc.cli.signals.heal import heal_signal
from airflow_provider_db2cdc.errors import SignalError

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_the_request_names_the_tables_and_the_condition() -> None:
    signal = heal_signal(["SALES.ORDERS", r"SALES\.A.*"], "", NOW)
    assert parse(signal) == ExecuteSnapshot(("SALES.ORDERS", r"SALES\.A.*"), "heal")
    assert (signal.channel, signal.id) == ("cli", "heal__2026-01-02T00:00:00+00:00")
    assert parse(heal_signal(["S.T"], "ID > 5", NOW)) == ExecuteSnapshot(("S.T",), "heal", (Condition("*", "ID > 5"),))


def test_a_select_is_refused() -> None:
    with pytest.raises(SignalError, match="is a select, which heal snapshots do not take"):
        parse(heal_signal(["S.T"], "SELECT * FROM S.T", NOW))
