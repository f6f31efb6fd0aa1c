import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.document import VERSION
from airflow_provider_db2cdc.cdc.job import (
    ApplySettings,
    JobResult,
    JobSpec,
    SourceSpec,
    Status,
    TableResult,
    TableTask,
)
from airflow_provider_db2cdc.cdc.lsn import WIDTHS, Lsn
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, PlannedRepair, Repair, RepairOrder, Replay
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, SignalTable
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkCounts,
    ChunkRange,
    DeleteMissing,
    KeyedChunks,
    KeylessRead,
)
from airflow_provider_db2cdc.cdc.table import Column, RejectedTable, TableId, TableSchema
from airflow_provider_db2cdc.errors import ConfigurationError

LOW, HIGH = Lsn(bytes(16)), Lsn(b"\x01" * 16)
TABLE = TableId("SALES", 'odd "näme"')
SCHEMA = TableSchema(
    TABLE,
    columns=(Column("ID", "INTEGER", 4, 0, False, False), Column("B", "CHARACTER", 9, 0, True, True)),
    key=("ID",),
    uncaptured_columns=("PHOTO",),
)
CAPTURE = CaptureRegistration(
    table=TABLE, cd_owner="ASNCDC", cd_table="CD", state="A", state_info="", update_as="U", before_prefix="X",
    pruned_upto=LOW, new_synchpoint=HIGH,
    cd_columns=(Column("IBMSNAP_COMMITSEQ", "VARCHAR", 16, 0, False, True), SCHEMA.columns[0]),
    identity=CaptureIdentity("ASNCDC.CD", "2024", "2023", "0a"), data_capture="L",
)  # fmt: skip
FOUND = Findings(1, 2, 3, 4, 5, 6, 7, 8, is_foreign=True, note="why")
SPEC = JobSpec(
    repair=RepairOrder(Backfill(1, 2, LOW, HIGH), is_dry_run=True),
    pipeline="sales",
    run_id="manual__1",
    plan_id="0a",
    planned_at_ms=1_700_000_000_000,
    target="/lake/sales",
    source=SourceSpec("jdbc:db2://h:1/D:", "D", "sales", "ASNCDC", "some.Driver"),
    capture_position=CapturePosition(HIGH, "2024-01-01T00:00:00.000000", "2024-01-01T00:00:01.500000", 1.5),
    tables=(
        TableTask(
            SCHEMA,
            CAPTURE,
            LOW,
            HIGH,
            7,
            action="start_without_snapshot",
            select="SELECT 1",
            batch=3,
            capture_interrupted=True,
            revision="m",
            source_restored=True,
            source_rows=5,
        ),
    ),
    settings=ApplySettings(
        False,
        "none",
        1,
        2,
        3,
        4,
        5,
        6,
        60.5,
        "insert_delete",
        5.5,
        "exclusive",
        7,
        8,
        True,
        "heal",
        True,
        True,
        False,
        "interval",
        True,
        True,
    ),
    rejected=(RejectedTable(TableId("S", "T"), "why"),),
    signals=(Signal("1", "log", "{}", "file", 7),),
    signal_table=SignalTable(TABLE, ("ID", "TYPE", "DATA"), CAPTURE, is_channel=False),
)
RESULT = JobResult(
    "sales",
    "manual__1",
    (
        TableResult(
            TABLE,
            "applied",
            lsn=HIGH,
            batch=3,
            after=LOW,
            creates=1,
            updates=2,
            deletes=3,
            reads=4,
            rows=5,
            commit_lsn=LOW,
            commit_ts_ms=6,
            has_unreported=True,
            capture_interrupted=True,
            offset_recovered=True,
            is_rejected=True,
            waits_for_operator=True,
            state_version=8,
            capture="digest",
            rewound=True,
            restart=True,
            reinitialized=True,
            is_replicated=False,
            revision="m",
            duration_s=9.25,
            error="noted",
            log_id="id",
            repair=FOUND,
        ),
        TableResult(TableId("S", "T"), "failed", error="why"),
    ),
    repair=Backfill(1, 2, LOW, HIGH),
    signals=(SignalOutcome("1", "file", "refused", "why"),),
    snapshots=(
        SnapshotProgress(
            "1", "blocking", "failed", (TableSnapshotProgress(TABLE, "failed", 1, None, 5, "why"),), 7, "why"
        ),
    ),
    notifications=(Notification("1", "Initial Snapshot", "STARTED", {"data_collections": "S.T"}, 7),),
    reported_seq=8,
    planned_at_ms=9,
    source_ahead_ms=-10,
)

st.register_type_strategy(
    Lsn, st.sampled_from(WIDTHS).flatmap(lambda width: st.binary(min_size=width, max_size=width)).map(Lsn)
)


def every(kind: type[Any], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return instances of a dataclass with every field drawn. By itself Hypothesis keeps defaults."""
    return st.builds(kind, **{field.name: given.get(field.name, ...) for field in dataclasses.fields(kind)})


numbers, version = st.floats(allow_nan=False), st.just(VERSION)
for part in (
    *(TableId, Column, TableSchema, CaptureIdentity, CaptureRegistration, SourceSpec, TableTask, RejectedTable),
    *(Signal, SignalTable, SignalOutcome, TableSnapshotProgress, SnapshotProgress, Notification),
):
    st.register_type_strategy(part, every(part))
st.register_type_strategy(CapturePosition, every(CapturePosition, age_s=numbers))
st.register_type_strategy(ApplySettings, every(ApplySettings, high_mark_timeout_s=numbers, snapshot_budget_s=numbers))
specs = every(JobSpec, tables=st.lists(st.from_type(TableTask), max_size=2).map(tuple), version=version)
table_results = every(TableResult, duration_s=numbers)
results = every(JobResult, tables=st.lists(table_results, max_size=3).map(tuple), version=version)


@given(specs)
def test_every_field_of_a_spec_survives_json(spec: JobSpec) -> None:
    assert JobSpec.from_json(spec.to_json()) == spec


@given(results)
def test_every_field_of_a_result_survives_json(result: JobResult) -> None:
    assert JobResult.from_json(result.to_json()) == result


st.register_type_strategy(ChunkCounts, every(ChunkCounts))


@given(st.one_of(*map(every, (KeyedChunks, KeylessRead, DeleteMissing))))
def test_every_field_of_a_chunk_range_survives_json(chunk_range: ChunkRange) -> None:
    assert from_data(ChunkRange, json.loads(json.dumps(to_data(chunk_range)))) == chunk_range
    assert from_data(ChunkRange | None, to_data(chunk_range)) == chunk_range


@pytest.mark.parametrize("found", [{"type": "other"}, {"type": 1}, {"type": []}, {}])
def test_a_member_of_a_union_is_refused_without_a_known_type(found: Mapping[str, object]) -> None:
    chunk_range = to_data(DeleteMissing("s", "initial", 0, 0, LOW, 1, 1, ""))
    del chunk_range["type"]
    with pytest.raises(ConfigurationError, match=r"type is .*expected one of keyed_chunks, keyless_read"):
        from_data(ChunkRange, {**chunk_range, **found})


def test_a_member_of_a_union_has_no_field_of_another_member() -> None:
    chunk_range = to_data(DeleteMissing("s", "initial", 0, 0, LOW, 1, 1, ""))
    with pytest.raises(ConfigurationError, match="has no field 'windows'"):
        from_data(ChunkRange, {**chunk_range, "windows": []})


@pytest.mark.parametrize("document", [SPEC, RESULT], ids=["spec", "result"])
def test_the_document_is_one_line(document: JobSpec | JobResult) -> None:
    assert "\n" not in document.to_json()
    assert type(document).from_json(document.to_json()) == document


@pytest.mark.parametrize("repair", [Backfill(1, 2, LOW, HIGH), Backfill(1, 2), Replay()], ids=str)
def test_every_field_of_a_repair_survives_json(repair: Repair) -> None:
    planned = PlannedRepair(repair, FOUND)
    assert from_data(PlannedRepair, json.loads(json.dumps(to_data(planned)))) == planned


def test_the_examples_leave_no_field_at_its_default() -> None:
    settings = dataclasses.asdict(SPEC.settings)
    assert not settings.items() & dataclasses.asdict(ApplySettings()).items()
    [task] = SPEC.tables
    assert [field.name for field in dataclasses.fields(task) if getattr(task, field.name) == field.default] == []
    assert task.table == TABLE
    defaults = {field.name: field.default for field in dataclasses.fields(TableResult)}
    assert [name for name, value in vars(RESULT.tables[0]).items() if value == defaults[name]] == []


def test_missing_fields_get_their_defaults() -> None:
    data = json.loads(SPEC.to_json())
    del data["settings"], data["rejected"]
    assert JobSpec.from_json(json.dumps(data)) == dataclasses.replace(SPEC, settings=ApplySettings(), rejected=())


def test_failed_tables_are_those_of_that_status() -> None:
    outcomes: list[tuple[Status, str]] = [("applied", ""), ("failed", "why"), ("unchanged", "noted"), ("failed", "")]
    lines = tuple(TableResult(TABLE, status, error=error) for status, error in outcomes)
    assert JobResult("sales", "run", lines).failed == (lines[1], lines[3])


@pytest.mark.parametrize(
    "value",
    [
        TableResult(TABLE, "applied", batch=0, rows=0),
        TableResult(TABLE, "applied", batch=None, rows=None),
        dataclasses.replace(CAPTURE, before_prefix=""),
        dataclasses.replace(CAPTURE, before_prefix=None),
    ],
)
def test_zero_empty_text_and_null_stay_distinct(value: TableResult | CaptureRegistration) -> None:
    assert from_data(type(value), to_data(value)) == value


def nodes(data: Any, path: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Walk JSON data: path, container, key in it, value."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        at = f"{path}.{key}" if isinstance(data, dict) else f"{path}[{key}]"
        yield at, data, key, value
        if isinstance(value, (dict, list)):
            yield from nodes(value, at)


DOCUMENTS: dict[str, tuple[type[JobSpec] | type[JobResult], JobSpec | JobResult]] = {
    "JobSpec": (JobSpec, SPEC),
    "JobResult": (JobResult, RESULT),
}
PATHS = [
    (name, path)
    for name, (_, document) in DOCUMENTS.items()
    for path, *_ in nodes(to_data(document), name)
    if not path.endswith(".version")
]


@pytest.mark.parametrize(("name", "path"), PATHS)
def test_a_value_of_another_type_is_named_by_its_path(name: str, path: str) -> None:
    kind, document = DOCUMENTS[name]
    data = to_data(document)
    container, key, value = next((c, k, v) for at, c, k, v in nodes(data, name) if at == path)
    container[key] = "wrong" if isinstance(value, (dict, list)) else ["wrong"]
    with pytest.raises(ConfigurationError) as raised:
        kind.from_json(json.dumps(data))
    assert raised.value.problem.startswith(path + " ")


OBJECTS = [
    (name, path)
    for name, path in PATHS
    if path.rsplit(".")[-1] in ("source", "capture_position", "settings", "identity")
]
OBJECTS += [("JobSpec", "JobSpec.tables[0]"), ("JobSpec", "JobSpec.tables[0].schema.columns[1]")]
OBJECTS += [("JobResult", "JobResult.tables[1]")]


@pytest.mark.parametrize(("name", "path"), OBJECTS)
def test_an_unknown_field_is_named_with_the_path_of_its_object(name: str, path: str) -> None:
    kind, document = DOCUMENTS[name]
    data = to_data(document)
    next(value for at, _, _, value in nodes(data, name) if at == path)["surprise"] = 1
    with pytest.raises(ConfigurationError) as raised:
        kind.from_json(json.dumps(data))
    assert raised.value.problem == f"{path} has no field 'surprise'"


def test_an_unknown_field_of_the_document_itself_is_named() -> None:
    with pytest.raises(ConfigurationError, match="JobSpec has no field 'surprise'"):
        JobSpec.from_json(json.dumps(to_data(SPEC) | {"surprise": 1}))


def test_a_missing_field_is_named_with_the_path_of_its_object() -> None:
    data = to_data(SPEC)
    del data["tables"][0]["upto"]
    with pytest.raises(ConfigurationError, match=r"JobSpec\.tables\[0\].*'upto'"):
        JobSpec.from_json(json.dumps(data))


@pytest.mark.parametrize("lsn", ["", "zz", "00000000", "0" * 32 + ":00"])
def test_a_text_that_is_not_an_lsn_is_named_by_its_path(lsn: str) -> None:
    data = to_data(SPEC)
    data["tables"][0]["upto"] = lsn
    with pytest.raises(ConfigurationError, match=r"JobSpec\.tables\[0\]\.upto"):
        JobSpec.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("field", "value"),
    [("rows", True), ("rows", 1.0), ("capture_interrupted", 1), ("capture_interrupted", "true"), ("rows", None)],
)
def test_json_types_that_python_confuses_are_distinguished(field: str, value: float | str | None) -> None:
    data = to_data(SPEC)
    data["tables"][0][field] = value
    with pytest.raises(ConfigurationError, match=rf"JobSpec\.tables\[0\]\.{field}"):
        JobSpec.from_json(json.dumps(data))


def test_a_whole_number_serves_where_a_float_is_meant() -> None:
    data = to_data(SPEC)
    data["capture_position"]["age_s"] = 2
    assert JobSpec.from_json(json.dumps(data)).capture_position.age_s == 2
    data["capture_position"]["age_s"] = True
    with pytest.raises(ConfigurationError, match=r"JobSpec\.capture_position\.age_s is a bool, expected float"):
        JobSpec.from_json(json.dumps(data))


def test_a_word_that_is_not_among_the_choices_is_refused_with_them() -> None:
    data = to_data(RESULT)
    data["tables"][0]["status"] = "maybe"
    with pytest.raises(ConfigurationError, match=r"tables\[0\]\.status.*applied, unchanged, failed"):
        JobResult.from_json(json.dumps(data))


@pytest.mark.parametrize("kind", [JobSpec, JobResult])
@pytest.mark.parametrize("text", ['{"version": 2}', '{"version": "1"}', '{"version": null}', "{}", "[]", "1", "null"])
def test_another_version_is_refused_with_both_versions(kind: type[JobSpec | JobResult], text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{kind.__name__} has version .* expected {VERSION}"):
        kind.from_json(text)


@pytest.mark.parametrize("kind", [JobSpec, JobResult])
@pytest.mark.parametrize("text", ["", "{", "not json", '{"version": 1,}'])
def test_text_that_is_not_json_is_refused(kind: type[JobSpec | JobResult], text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not JSON"):
        kind.from_json(text)


def test_the_version_is_checked_before_the_fields() -> None:
    with pytest.raises(ConfigurationError, match="has version 2"):
        JobSpec.from_json(json.dumps(to_data(SPEC) | {"version": 2, "from_the_future": 1}))


@dataclass(frozen=True)
class Holder:
    counts: Mapping[str, int]
    anything: Any = None
    lsn: Lsn | None = None


def test_mappings_and_untyped_values_pass() -> None:
    holder = Holder({"a": 1}, {"deep": [1, "x"]}, HIGH)
    assert to_data(holder) == {"counts": {"a": 1}, "anything": {"deep": [1, "x"]}, "lsn": str(HIGH)}
    assert from_data(Holder, to_data(holder)) == holder


def test_a_wrong_value_in_a_mapping_is_named_by_its_key() -> None:
    with pytest.raises(ConfigurationError, match=r"Holder\.counts\.a is a str, expected int"):
        from_data(Holder, {"counts": {"a": "1"}})
