"""The source's clock in a job's plan."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.job import JobSpec, SourceSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn


@pytest.mark.parametrize(("clock", "ahead_ms"), [("2023-11-14T22:13:20.5", 500), ("2023-11-15T00:13:20", 7_200_000)])
def test_a_plan_knows_how_far_the_sources_local_clock_is_ahead(clock: str, ahead_ms: int) -> None:
    position = CapturePosition(Lsn(bytes(16)), clock, clock, 0.0)
    source = SourceSpec("jdbc:db2://h/D", "D", "p", "ASN")
    spec = JobSpec("p", "run", "0a", 1_700_000_000_000, "/t", source, position, ())
    assert spec.source_ahead_ms == ahead_ms
