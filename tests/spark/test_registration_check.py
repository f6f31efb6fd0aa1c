"""What the job checks in registrations after a count: each way to lose changes since the plan."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.spark.jdbc.registration_check import registration_errors

TABLE = TableId("S", "T")
CREATED, SOURCE_CREATED = "2026-01-02T00:00:00.000000", "2026-01-01T00:00:00.000000"


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


IDENTITY = CaptureIdentity("ASNCDC.CDC_T", CREATED, SOURCE_CREATED, str(lsn(1)))
CAPTURE = CaptureRegistration(TABLE, "ASNCDC", "CDC_T", "A", "", "DI", None, None, None, (), IDENTITY)
SPAN = LsnRange(lsn(5), lsn(9))


@dataclass
class Registered(DriverConnection):
    """A source's control tables and catalog: one registration, when its tables were created, the last cold start."""

    owner: str = "S"
    change_table: str = "CDC_T"
    state: str = "A"
    floor: Lsn | str | None = None
    created: dict[str, str] = field(default_factory=lambda: {"CDC_T": CREATED, "T": SOURCE_CREATED})
    cold_start: int = 1

    def text_rows(self, select: str) -> list[list[str | None]]:
        if "SYSCAT.TABLES" in select:
            times = {name: at.replace("T", " ") for name, at in self.created.items()}
            schemas = {"CDC_T": "ASNCDC", "T": "S"}
            named = {name: f"TABNAME = '{name}' AND CREATE_TIME = TIMESTAMP('{at}')" for name, at in times.items()}
            return [[f"{schemas[name]}  ", name] for name, text in named.items() if text in select]
        floor, first = self.floor.hex if isinstance(self.floor, Lsn) else self.floor, lsn(self.cold_start).hex
        return [[self.owner, "T", "ASNCDC", self.change_table, self.state, None, "Y", None, floor, None, first]]


@pytest.mark.parametrize("floor", [None, lsn(5), "0000000000000000"], ids=["none", "at the offset", "zeros by hand"])
def test_an_unchanged_registration_has_no_error(floor: Lsn | str | None) -> None:
    assert registration_errors("ASNCDC", [CAPTURE], [SPAN], Registered(floor=floor)) == {}


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (Registered(owner="OTHER"), "not registered in schema ASNCDC any more"),
        (Registered(change_table="CDC_T2"), "registered again"),
        (Registered(created={"T": SOURCE_CREATED}), "change table ASNCDC.CDC_T was created again at a later time"),
        (Registered(created={"CDC_T": CREATED}), "source table was created again at a later time"),
        (Registered(cold_start=2), "started cold"),
        (Registered(floor=lsn(6)), "are pruned, and only those up to"),
        (Registered(state="S "), "registered in state 'S'"),
    ],
)
def test_a_registration_with_changes_lost_since_the_plan_is_an_error(now: Registered, told: str) -> None:
    errors = registration_errors("ASNCDC", [CAPTURE], [SPAN], now)
    assert [*errors] == [TABLE]
    assert told in str(errors[TABLE])
