"""The plan of a verification: which tables it compares, refuses and excludes."""

from __future__ import annotations

import pytest
from support.control_tables import ControlTables
from support.sandbox_source import CountingSource

from airflow_provider_db2cdc.cdc.verify.document import VerifySpec
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import CaptureStoppedError, ConfigurationError
from airflow_provider_db2cdc.source.planning.verification import VerifyRequest, plan_verification

pytestmark = pytest.mark.sandbox


@pytest.fixture
def chosen(control: ControlTables, config: PipelineConfig) -> PipelineConfig:
    """A configuration with two tables that have a key, one without a key, and one that a select replaces."""
    for name in ("ORDERS", "ITEMS", "PART"):
        control.add(name)
    control.add("KEYLESS", key=())
    part = str(control.table("PART"))
    return config.model_copy(update={"snapshot_overrides": {part: "SELECT * FROM X"}})


def names(spec: VerifySpec) -> list[str]:
    return [task.table.name for task in spec.tables]


def test_all_comparable_tables_are_planned(
    source: CountingSource, control: ControlTables, chosen: PipelineConfig
) -> None:
    spec = plan_verification(source, chosen, VerifyRequest("v", show_keys=True, budget_s=3.0))
    assert sorted(names(spec)) == ["ITEMS", "ORDERS"]
    reasons = {excluded.table.name: excluded.error for excluded in spec.excluded}
    assert "it has no key, so its rows cannot be matched one by one. Compare its counts (--quick)" in reasons["KEYLESS"]
    assert "its snapshots read a select" in reasons["PART"]
    assert (spec.verification, spec.show_keys, spec.budget_s, spec.rejected) == ("v", True, 3.0, ())


def test_counts_need_no_key(source: CountingSource, control: ControlTables, chosen: PipelineConfig) -> None:
    spec = plan_verification(source, chosen, VerifyRequest("v", [str(control.table("KEYLESS"))], quick=True))
    assert names(spec) == ["KEYLESS"]
    assert spec.quick


@pytest.mark.parametrize(
    ("name", "message"),
    [("KEYLESS", "cannot be verified: it has no key"), ("PART", "a select of"), ("NONE", "is not a captured table")],
)
def test_a_named_table_that_cannot_be_compared_is_refused(
    source: CountingSource, control: ControlTables, chosen: PipelineConfig, name: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plan_verification(source, chosen, VerifyRequest("v", [str(control.table(name))]))


def test_a_table_that_is_not_captured_is_rejected(
    source: CountingSource, control: ControlTables, chosen: PipelineConfig
) -> None:
    control.set("ITEMS", STATE="S")
    spec = plan_verification(source, chosen, VerifyRequest("v"))
    assert names(spec) == ["ORDERS"]
    assert [rejected.table.name for rejected in spec.rejected] == ["ITEMS"]


def test_a_capture_that_stands_still_is_an_error(
    source: CountingSource, control: ControlTables, chosen: PipelineConfig
) -> None:
    control.synch(100, age_s=100_000)
    with pytest.raises(CaptureStoppedError):
        plan_verification(source, chosen, VerifyRequest("v"))
