from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from support.control_tables import COMMITTED_MS, ControlTables, Shape, lsn
from support.no_offsets import NoOffsets
from support.sandbox_source import CountingSource

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary, TableFailure
from airflow_provider_db2cdc.cdc.selection.tables import Selection
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES, Mode
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.source.catalog import read_registrations
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.preflight.check import Check
from airflow_provider_db2cdc.source.preflight.checks import preflight

pytestmark = pytest.mark.sandbox


class OneOffset(NoOffsets):
    """Every table has the same offset."""

    def __init__(self, number: int) -> None:
        self._number = number

    def get(self, table: TableId) -> Offset:
        return Offset(table, lsn(self._number), 1)


def failed(source: Source, config: PipelineConfig, **more: Any) -> list[Check]:
    return [check for check in preflight(source, config, **more) if not check.ok]


def digest_of(source: CountingSource, config: PipelineConfig) -> str:
    [instance] = read_registrations(source, config.asn_schema).values()
    return instance.identity.digest


@pytest.fixture
def captured(control: ControlTables) -> ControlTables:
    """A table with which everything is well."""
    control.add("T")
    control.capture("T", 50)
    return control


def test_healthy_source_passes_every_check(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    checks = preflight(source, config, OneOffset(50))
    assert [check.name for check in checks if not check.ok] == []
    assert {check.name for check in checks} == {
        "connection", "control tables", "capture agent", "source table", "change table", "state", "key", "select",
        "update rows", "before images", "types", "values", "column names", "prune control", "option flags",
        "data capture", "row size",
        "columns", "unique rows", "capture started", "change table index", "change table readable",
        "source table readable", "offset",
    }  # fmt: skip
    assert all(not check.problem and not check.remedy for check in checks)


INDEXES = "DELETE FROM SANDBOX_SYSCAT.INDEXES WHERE TABSCHEMA"
FAULTS: dict[str, tuple[Callable[[ControlTables], None], str]] = {
    "state": (lambda c: c.set("T", STATE="I"), "error"),
    "update rows": (lambda c: c.set("T", CHG_UPD_TO_DEL_INS="N"), "error"),
    "option flags": (lambda c: c.set("T", OPTION_FLAGS="NNNY"), "error"),
    "prune control": (lambda c: c.run(f"DELETE FROM {c.asn}.IBMSNAP_PRUNCNTL"), "error"),
    "data capture": (
        lambda c: c.run(f"UPDATE SANDBOX_SYSCAT.TABLES SET DATACAPTURE = 'N' WHERE TABSCHEMA = '{c.schema}'"),
        "error",
    ),
    "row size": (
        lambda c: c.run(f"UPDATE SANDBOX_SYSCAT.TABLES SET EXTENDED_ROW_SIZE = 'Y' WHERE TABSCHEMA = '{c.schema}'"),
        "warning",
    ),
    "unique rows": (
        lambda c: c.run(f"DELETE FROM SANDBOX_SYSCAT.INDEXES WHERE TABSCHEMA = '{c.schema}'"),
        "warning",
    ),
    "change table index": (
        lambda c: c.run(f"DELETE FROM SANDBOX_SYSCAT.INDEXES WHERE TABSCHEMA = '{c.asn}'"),
        "warning",
    ),
    "change table readable": (lambda c: c.run(f'DROP TABLE {c.asn}."CD_T"'), "error"),
    "source table readable": (lambda c: c.run(f'DROP TABLE {c.schema}."T"'), "error"),
    "change table": (lambda c: c.set("T", CD_TABLE="GONE"), "error"),
    "capture agent": (lambda c: c.synch(100, age_s=5000), "error"),
    "offset": (lambda c: c.set("T", CD_OLD_SYNCHPOINT=lsn(51).raw), "error"),
    "capture started": (lambda c: c.run(f"UPDATE {c.asn}.IBMSNAP_REGISTER SET CD_NEW_SYNCHPOINT = NULL"), "warning"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_fails_only_its_own_check(
    source: CountingSource, config: PipelineConfig, captured: ControlTables, name: str
) -> None:
    spoil, level = FAULTS[name]
    spoil(captured)
    [check] = failed(source, config, offsets=OneOffset(50))
    assert (check.name, check.level) == (name, level)
    assert check.problem
    assert check.remedy


def test_columns_that_are_not_replicated_are_a_warning(
    source: CountingSource, config: PipelineConfig, control: ControlTables
) -> None:
    control.add("T", (("ID", "INTEGER", 4, "N"), ("DOC", "CLOB", 9, "Y")))
    control.capture("T", 50)
    [check] = failed(source, config)
    assert (check.name, check.level) == ("columns", "warning")
    assert "DOC" in check.problem


def test_long_columns_must_be_in_the_log(
    source: CountingSource, config: PipelineConfig, control: ControlTables
) -> None:
    control.add("T", (("ID", "INTEGER", 4, "N"), ("MEMO", "LONG VARCHAR", 32700, "Y")))
    control.capture("T", 50)
    [check] = failed(source, config)
    assert (check.name, check.level) == ("values", "error")
    assert "INCLUDE LONGVAR COLUMNS" in check.remedy
    control.run(f"UPDATE SANDBOX_SYSCAT.TABLES SET DATACAPTURE = 'L' WHERE TABSCHEMA = '{control.schema}'")
    assert failed(source, config) == []


def test_all_failures_of_all_tables_are_reported_together(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    captured.add("BAD", STATE="S", CHG_UPD_TO_DEL_INS="N", OPTION_FLAGS="YNNN", key=())
    captured.synch(100, age_s=5000)
    found = {check.name for check in failed(source, config) if check.level == "error"}
    assert found == {"capture agent", "state", "key", "update rows", "option flags"}


def test_agent_that_never_ran_does_not_hide_the_tables(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    captured.run(f"UPDATE {captured.asn}.IBMSNAP_REGISTER SET SYNCHPOINT = NULL, CD_NEW_SYNCHPOINT = NULL")
    captured.set("T", STATE="I")
    assert {check.name for check in failed(source, config)} == {"capture agent", "state"}


def test_pattern_without_a_match_does_not_hide_the_other_tables(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    captured.set("T", STATE="I")
    chosen = Selection(table_include=("NO.TABLE", rf"{captured.schema}\.T"))
    found = failed(source, config.model_copy(update={"selection": chosen}))
    subjects = [(check.name, check.subject) for check in found]
    assert subjects == [("selection", "table.include.list"), ("state", f"{captured.schema}.T")]


@pytest.mark.parametrize("lists", [{}, {"table_include": (".*",)}], ids=["no list", "a list"])
def test_key_pattern_without_a_match_does_not_hide_the_tables(
    source: CountingSource, config: PipelineConfig, captured: ControlTables, lists: dict[str, tuple[str, ...]]
) -> None:
    captured.set("T", STATE="I")
    chosen = Selection(message_key="NO.TABLE:ID", **lists)
    found = failed(source, config.model_copy(update={"selection": chosen}))
    subjects = [(check.name, check.subject) for check in found]
    assert subjects == [("selection", "message.key.columns"), ("state", f"{captured.schema}.T")]


@pytest.mark.parametrize(
    ("lists", "level"),
    [
        ({"table_exclude": ("NO.TABLE",)}, "warning"),
        ({"column_include": ("NO.TABLE.X", ".*")}, "warning"),
        ({"column_exclude": ("NO.TABLE.X",)}, "error"),
    ],
)
def test_each_list_is_checked(
    source: CountingSource,
    config: PipelineConfig,
    captured: ControlTables,
    lists: dict[str, tuple[str, ...]],
    level: str,
) -> None:
    [check] = failed(source, config.model_copy(update={"selection": Selection(**cast("Any", lists))}))
    [name] = lists
    assert (check.name, check.subject, check.level) == ("selection", f"{name.replace('_', '.')}.list", level)
    assert "'NO.TABLE" in check.problem
    assert check.remedy


def test_no_registered_table_is_a_failure(source: CountingSource, config: PipelineConfig) -> None:
    [check] = failed(source, config)
    assert check.name == "selection"


def test_refused_login_is_the_only_check(address: Db2Address, config: PipelineConfig) -> None:
    [check] = preflight(Source(replace(address, password="hush")), config)
    assert (check.name, check.ok) == ("connection", False)
    assert "refuses the login" in check.problem
    assert "hush" not in repr(check)


def test_missing_control_tables_end_the_checks(source: CountingSource, config: PipelineConfig) -> None:
    checks = preflight(source, config.model_copy(update={"asn_schema": "NOWHERE"}))
    assert [(check.name, check.ok) for check in checks] == [("connection", True), ("control tables", False)]


def test_include_list_of_snapshots_is_checked(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    settings = {"snapshot_include": (r"SRC.*\.T", "S.TYPO")}
    [check] = failed(source, config.model_copy(update=settings))
    assert (check.name, check.subject) == ("selection", "snapshot.include.collection.list")
    assert "'S.TYPO' matches no table of this pipeline" in check.problem


def test_custom_select_is_checked(source: CountingSource, config: PipelineConfig, captured: ControlTables) -> None:
    settings = {"snapshot_overrides": {"S.TYPO": "SELECT 1"}}
    [check] = failed(source, config.model_copy(update=settings))
    assert (check.name, check.subject) == ("selection", "snapshot.select.statement.overrides")
    assert "'S.TYPO' is no table of this pipeline" in check.problem


ASKED = (("ID", "VARCHAR", 42, "N"), ("TYPE", "VARCHAR", 32, "N"), ("DATA", "VARCHAR", 2048, "Y"))


def test_signal_table_is_checked(source: CountingSource, config: PipelineConfig, captured: ControlTables) -> None:
    captured.add("ASKED", ASKED)
    chosen = {"selection": Selection(table_include=(rf"{captured.schema}\.T",))}
    for marks in ("read_only", "insert_insert"):
        settings = {**chosen, "signal_table": f"{captured.schema}.ASKED", "watermarking": marks}
        checks = preflight(source, config.model_copy(update=settings))
        assert [check.name for check in checks if not check.ok] == []
    assert {"signal table", "marks"} <= {check.name for check in checks}


@pytest.mark.parametrize(
    ("settings", "name", "problem"),
    [
        ({"signal_table": "{s}.NONE"}, "signal table", "does not exist"),
        ({"signal_table": "{s}.T"}, "signal table", "has no column type"),
        ({"watermarking": "insert_delete"}, "signal table", "there is no captured signal table"),
    ],
    ids=["missing", "other columns", "none for marks"],
)
def test_unusable_signal_table_is_a_failure(
    source: CountingSource,
    config: PipelineConfig,
    captured: ControlTables,
    settings: dict[str, str],
    name: str,
    problem: str,
) -> None:
    given = {key: value.format(s=captured.schema) for key, value in settings.items()}
    [check] = failed(source, config.model_copy(update=given))
    assert (check.name, problem in check.problem) == (name, True)


@pytest.mark.parametrize(
    ("at", "shape", "problem"),
    [(1, ("TYPE", "DATE", 4, "N"), "holds no text"), (0, ("ID", "CHARACTER", 36, "N"), "holds 36 characters")],
    ids=["type", "length"],
)
def test_signal_table_with_unfit_columns_is_a_failure(
    source: CountingSource, config: PipelineConfig, captured: ControlTables, at: int, shape: Shape, problem: str
) -> None:
    captured.add("ASKED", tuple(shape if place == at else column for place, column in enumerate(ASKED)))
    chosen = {"selection": Selection(table_include=(rf"{captured.schema}\.T",)), "watermarking": "insert_insert"}
    [check] = failed(source, config.model_copy(update={**chosen, "signal_table": f"{captured.schema}.ASKED"}))
    assert (check.name, problem in check.problem) == ("signal table", True)


def test_signal_table_that_is_not_captured_cannot_take_watermarks(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    captured.add("ASKED", ASKED)
    captured.run(f"DELETE FROM {captured.asn}.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'ASKED'")
    settings = {"signal_table": f"{captured.schema}.ASKED", "watermarking": "insert_insert"}
    [check] = failed(source, config.model_copy(update=settings))
    assert check.name == "marks"
    assert failed(source, config.model_copy(update={**settings, "watermarking": "read_only"})) == []


class Kept(OneOffset):
    """An offset with marks."""

    def __init__(self, number: int = 50, summary: PipelineSummary | None = None, **marks: Any) -> None:
        super().__init__(number)
        self._marks, self._backlog = marks, summary or PipelineSummary()

    def summary(self) -> PipelineSummary:
        return self._backlog

    def get(self, table: TableId) -> Offset:
        return replace(super().get(table), **self._marks)


def test_offset_is_checked_as_a_tick_would_take_it(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    captured.set("T", CD_OLD_SYNCHPOINT=lsn(40).raw)
    [check] = failed(source, config, offsets=Kept(capture_interrupted=True))
    assert "was not active for a while" in check.problem
    [check] = failed(source, config, offsets=Kept(30))
    assert f"`db2cdc offset restart {captured.table('T')}`" in check.remedy
    assert failed(source, config, offsets=Kept(30, restart=True)) == []
    [check] = failed(source, config, offsets=Kept(101))
    assert "before the offset" in check.problem
    [check] = failed(source, config, offsets=Kept(90, committed_lsn=lsn(60)))
    assert (check.level, "ahead of the target" in check.problem) == ("error", True)
    [check] = failed(source, config, offsets=Kept(90, capture="another"))
    assert "its capture was replaced" in check.problem
    assert failed(source, config, offsets=Kept(0)) == [], "it has no position yet"


def test_a_gap_is_not_a_failure_if_the_mode_repairs_or_ignores_it(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    captured.set("T", CD_OLD_SYNCHPOINT=lsn(40).raw)
    [check] = failed(source, config.model_copy(update={"snapshot_mode": "when_needed"}), offsets=Kept(30))
    assert (check.name, check.level) == ("offset", "warning")
    assert failed(source, config.model_copy(update={"snapshot_mode": "initial_only"}), offsets=Kept(30)) == []


def test_an_offset_is_read_before_the_capture_position(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    class Moved(OneOffset):
        """A tick ends during the checks, and capture has advanced for it."""

        def get(self, table: TableId) -> Offset:
            captured.synch(150)
            return super().get(table)

    assert failed(source, config, offsets=Moved(140)) == []


def test_a_new_table_that_was_inactive_is_not_a_failure(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    table = captured.table("T")
    assert failed(source, config, offsets=Kept(0, capture_interrupted=True)) == []
    refused = PipelineSummary(
        tables=(table,), failures=(TableFailure(table, "registered in state 'I'", is_rejected=True),)
    )
    assert failed(source, config, offsets=Kept(0, summary=refused, capture_interrupted=True)) == []


def test_a_table_that_lost_its_offset_or_failed_last_is_reported(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    table = captured.table("T")
    [check] = failed(source, config, offsets=Kept(0, summary=PipelineSummary(tables=(table,))))
    assert (check.name, check.level) == ("offset", "warning")
    assert f"db2cdc offset restart {table}" in check.remedy
    assert failed(source, config, offsets=Kept(0, summary=PipelineSummary(tables=(table,)), restart=True)) == []
    bad = PipelineSummary(tables=(table,), failures=(TableFailure(table, "S.T: its key is not unique"),))
    [check] = failed(source, config, offsets=Kept(50, summary=bad))
    assert (check.name, check.level, check.problem) == ("last tick", "warning", "S.T: its key is not unique")


def test_a_table_that_waits_for_a_person_is_a_failure_until_then(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    table = captured.table("T")
    lost = PipelineSummary(
        tables=(table,),
        failures=(TableFailure(table, "its offset is missing", waits_for_operator=True),),
        planned_at_ms=5,
    )
    [check] = failed(source, config, offsets=Kept(0, summary=lost))
    assert (check.name, check.level, check.problem) == ("last tick", "error", "its offset is missing")
    [check] = failed(source, config, offsets=Kept(50, summary=lost, planned_at_ms=6))
    assert (check.name, check.level) == ("last tick", "warning")
    assert failed(source, config, offsets=Kept(0, summary=lost, restart=True))[0].level == "warning"


def test_a_restored_source_is_a_failure_before_any_plan_has_found_it(
    source: CountingSource, config: PipelineConfig, captured: ControlTables
) -> None:
    captured.unit(50)
    digest = digest_of(source, config)
    kept = Kept(90, capture=digest, committed_lsn=lsn(90), commit_lsn=lsn(50), commit_ts_ms=COMMITTED_MS)
    assert failed(source, config, offsets=kept) == []
    captured.run(f"UPDATE {captured.asn}.IBMSNAP_UOW SET IBMSNAP_LOGMARKER = CURRENT_TIMESTAMP")
    [check] = failed(source, config, offsets=kept)
    assert "the source was restored or capture reset" in check.problem


@pytest.mark.parametrize("mode", [*MODES, "configuration_based"])
def test_source_table_must_be_readable_in_every_mode(
    source: CountingSource, config: PipelineConfig, captured: ControlTables, mode: str
) -> None:
    captured.run(f'DROP TABLE {captured.schema}."T"')
    [check] = failed(source, config.model_copy(update={"snapshot_mode": mode}))
    assert (check.name, check.subject) == ("source table readable", f"{captured.schema}.T")
    takes_none = mode in ("no_data", "recovery", "configuration_based")
    assert check.level == ("warning" if takes_none else "error")


@pytest.mark.parametrize("switch", ["snapshot_data", "snapshot_on_data_error"])
def test_source_table_must_be_readable_if_a_switch_has_it_snapshotted(
    source: CountingSource, config: PipelineConfig, captured: ControlTables, switch: str
) -> None:
    captured.run(f'DROP TABLE {captured.schema}."T"')
    [check] = failed(source, config.model_copy(update={"snapshot_mode": "configuration_based", switch: True}))
    assert check.level == "error"


class Own(Mode):
    """A mode of one's own."""


def test_custom_mode_is_loaded(source: CountingSource, config: PipelineConfig, captured: ControlTables) -> None:
    own = config.model_copy(update={"snapshot_mode": "custom", "snapshot_custom": f"{__name__}:Own"})
    [named] = [check for check in preflight(source, own) if check.subject == "snapshot.mode.custom.name"]
    assert (named.name, named.ok) == ("snapshot mode", True)
    [check] = failed(source, own.model_copy(update={"snapshot_custom": f"{__name__}:Nothing"}))
    assert (check.name, check.subject) == ("snapshot mode", "snapshot.mode.custom.name")
    assert "has no attribute 'Nothing'" in check.problem


def test_wrong_custom_mode_is_reported_together_with_a_refused_login(
    address: Db2Address, config: PipelineConfig
) -> None:
    settings = {"snapshot_mode": "custom", "snapshot_custom": "no.such.module:Class"}
    found = failed(Source(replace(address, password="hush")), config.model_copy(update=settings))
    assert [check.name for check in found] == ["snapshot mode", "connection"]
