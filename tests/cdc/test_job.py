"""The plan of a job: the source's clock, and the text that Airflow keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.job_samples import job_spec, table_task

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.job import JobSpec, SourceSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import Column
from airflow_provider_db2cdc.errors import ConfigurationError


@pytest.mark.parametrize(("clock", "ahead_ms"), [("2023-11-14T22:13:20.5", 500), ("2023-11-15T00:13:20", 7_200_000)])
def test_a_plan_knows_how_far_the_sources_local_clock_is_ahead(clock: str, ahead_ms: int) -> None:
    position = CapturePosition(Lsn(bytes(16)), clock, clock, 0.0)
    source = SourceSpec("jdbc:db2://h/D", "D", "p", "ASN")
    spec = JobSpec("p", "run", "0a", 1_700_000_000_000, "/t", source, position, ())
    assert spec.source_ahead_ms == ahead_ms


def many_tables(count: int) -> JobSpec:
    """Return the plan of tables with twelve columns each."""
    columns = tuple(Column(f"COLUMN_{at}", ("INTEGER", "VARCHAR", "DECIMAL")[at % 3], at, 0) for at in range(12))
    tasks = (table_task(f"ORDERS_{at}") for at in range(count))
    return replace(
        job_spec(), tables=tuple(replace(task, schema=replace(task.schema, columns=columns)) for task in tasks)
    )


def test_the_plan_of_many_tables_takes_a_tenth_of_its_json_in_an_xcom() -> None:
    plan = many_tables(300)
    assert len(plan.to_xcom()) < len(plan.to_json()) / 10
    assert JobSpec.from_json(plan.to_xcom()) == plan


def test_the_plan_of_few_tables_can_be_read_in_the_xcom() -> None:
    plan = many_tables(10)
    assert plan.to_xcom() == plan.to_json()


@pytest.mark.parametrize("damage", [lambda text: text[:-40], lambda text: text + "!", lambda text: text[:-1] + "é"])
def test_a_damaged_xcom_is_refused(damage: Callable[[str], str]) -> None:
    with pytest.raises(ConfigurationError, match="the JobSpec is not JSON"):
        JobSpec.from_json(damage(many_tables(300).to_xcom()))
