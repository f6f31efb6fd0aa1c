"""The tables that failed in a tick."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import RegistrationError, SourceError
from airflow_provider_db2cdc.tick.failures import TableFailures

REJECTED, UNREADABLE, INACTIVE = (TableId("S", name) for name in ("REJECTED", "UNREADABLE", "INACTIVE"))


def test_an_inactive_registration_is_also_reported_as_interrupted_capture() -> None:
    failures = TableFailures({REJECTED: "no key"})
    failures.add(UNREADABLE, SourceError("denied"))
    failures.add(INACTIVE, RegistrationError("state I"))
    assert failures.errors == {REJECTED: "no key", UNREADABLE: "denied", INACTIVE: "state I"}
    assert failures.capture_interrupted == {INACTIVE}


def test_errors_that_were_read_do_not_change_with_another_thread() -> None:
    failures = TableFailures({})
    errors = failures.errors
    failures.add(UNREADABLE, SourceError("denied"))
    assert errors == {}
    assert failures.errors.keys() == {UNREADABLE}
