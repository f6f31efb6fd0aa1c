"""Snapshot modes, from a table's first tick on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import captured_events, check_log, logged_events, reads
from support.pipeline import Pipeline, use_signal_table
from support.writing import behind, in_window

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.mode import CUSTOM
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.jdbc.connection import Fetch

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


class OnlyNamedKnown:
    """A custom snapshotter: data for new tables, and no streaming."""

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        return not known and not in_progress

    def stream(self) -> bool:
        return False

    def snapshot_on_gap(self) -> bool:
        return False

    def recover_offset(self) -> bool:
        return False


class Mending(OnlyNamedKnown):
    """A custom snapshotter that pulls changes, and mends what is lost by a snapshot."""

    def stream(self) -> bool:
        return True

    def snapshot_on_gap(self) -> bool:
        return True


SWITCHES = {"snapshot.mode": "configuration_based"} | {
    f"snapshot.mode.configuration.based.{name}": True
    for name in ("snapshot.data", "start.stream", "snapshot.on.data.error")
}


def table_of(pipeline: Pipeline, name: str = "T") -> TableId:
    ddl = f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))'
    table = pipeline.create(ddl, name)
    insert(pipeline, 1, name)
    return table


def insert(pipeline: Pipeline, number: int, name: str = "T") -> None:
    pipeline.execute(f'INSERT INTO "{pipeline.schema}"."{name}" VALUES (?, ?)', number, "a")
    pipeline.writer.commit()
    pipeline.captured()


def test_no_data_begins_at_the_fence_and_recovery_finds_a_lost_offset(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "no_data"})
    table = table_of(pipeline)
    first = pipeline.tick()
    assert first is not None
    [note] = first.notifications
    assert (note.aggregate_type, note.type) == ("Initial Snapshot", "SKIPPED")
    assert note.additional_data["data_collections"] == str(table)
    insert(pipeline, 2)
    pipeline.tick()
    assert pipeline.rows(table) == {(2, "a")}
    assert not reads(pipeline, table)
    pipeline.offsets.remove(table)
    insert(pipeline, 3)
    lost = pipeline.tick()
    assert lost is not None
    assert "missing" in lost.failed[0].error
    pipeline.properties = {"snapshot.mode": "recovery"}
    pipeline.tick()
    assert pipeline.rows(table) == {(2, "a"), (3, "a")}
    assert not reads(pipeline, table)


def test_a_table_that_began_without_its_rows_has_them_once_they_are_asked_for(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """What changed by then is in the log, of rows that the state never had, too."""
    pipeline = new_pipeline(**{"snapshot.mode": "no_data", "incremental.snapshot.chunk.size": 2})
    table = filled(pipeline, 6)
    pipeline.passed()
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID IN (1, 5)", f"DELETE FROM {table} WHERE ID = 2")
    pipeline.passed()
    assert pipeline.rows(table) == {(1, "b"), (5, "b")}
    with in_window(pipeline, f"UPDATE {table} SET ID = 9 WHERE ID = 0", f"DELETE FROM {table} WHERE ID = 5"):
        pipeline.passed(ask(table))
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


@pytest.mark.parametrize(
    "mode", ["initial_only", pytest.param(f"custom {__name__}:OnlyNamedKnown", marks=pytest.mark.long)]
)
def test_modes_without_streaming_pull_nothing_after_the_snapshot(
    new_pipeline: Callable[..., Pipeline], mode: str
) -> None:
    name, _, custom = mode.partition(" ")
    isolation = "repeatable_read" if custom else "exclusive"
    pipeline = new_pipeline(
        **{"snapshot.mode": name, "snapshot.mode.custom.name": custom, "snapshot.isolation.mode": isolation}
    )
    table = table_of(pipeline)
    pipeline.tick()
    insert(pipeline, 2)
    assert pipeline.tick() is None
    assert pipeline.rows(table) == {(1, "a")}

    faults.prune(pipeline.writer)
    if not custom:
        table_of(pipeline, "NEW")
    result = pipeline.tick() if not custom else pipeline.tick(ask(table))
    assert result is not None
    errors = [line.error for line in result.failed]
    assert ["pruned" in error for error in errors] == ([True] if custom else []), "nobody pulls them but a snapshot"


def test_a_snapshot_of_one_table_pulls_nothing_of_another_without_streaming(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "initial_only"})
    one, other = filled(pipeline, 3, "T1"), filled(pipeline, 3, "T2")
    pipeline.passed()
    kept = pipeline.offsets.get(one)
    assert kept is not None
    spec = pipeline.plan(signals=[ask(other)])
    assert spec is not None
    # As where nothing at all was committed since the tick before.
    spec = replace(spec, capture_position=replace(spec.capture_position, lsn=kept.lsn))
    both = [f"UPDATE {table} SET A = 'b' WHERE ID = 1" for table in (one, other)]
    with in_window(pipeline, *both):
        pipeline.commit(job.run(spec))
    assert pipeline.rows(other) == pipeline.source_rows(other)
    assert pipeline.changes(one).where("op <> 'r'").isEmpty()
    assert pipeline.offsets.get(one) == kept


def test_a_table_that_is_included_later_is_snapshotted_and_no_other(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    old, new = table_of(pipeline, "OLD"), table_of(pipeline, "NEW")
    pipeline.properties = {"table.include.list": str(old)}
    pipeline.passed()
    insert(pipeline, 2, "OLD")
    insert(pipeline, 2, "NEW")
    pipeline.properties = {"table.include.list": f"{old},{new}"}
    pipeline.passed()
    assert (reads(pipeline, old), reads(pipeline, new)) == ({(1,): 1}, {(1,): 1, (2,): 1})
    assert pipeline.rows(old) == pipeline.rows(new) == {(1, "a"), (2, "a")}


def test_chunks_are_fetched_as_it_is_set(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(
        **{"snapshot.isolation.mode": "repeatable_read", "snapshot.fetch.size": 77, "snapshot.max.threads": 3}
    )
    table_of(pipeline)
    found: list[tuple[Fetch, int]] = []

    def note(reached: ReachedFailpoint) -> None:
        found.append((reached.arguments["how"], reached.arguments["readers"]))

    with failpoint_action("read_chunk_rows", before=note):
        pipeline.passed()
    assert found == [(Fetch(77, "repeatable_read"), 3)]


def test_always_reads_the_table_in_each_tick(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "always"})
    table = table_of(pipeline)
    [first] = pipeline.passed().tables
    insert(pipeline, 2)
    pipeline.execute(f"DELETE FROM {table} WHERE ID = 1")
    pipeline.execute(f"INSERT INTO {table} VALUES (3, 'a')")
    pipeline.writer.commit()
    pipeline.execute(f"DELETE FROM {table} WHERE ID = 3")
    pipeline.writer.commit()
    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after", 2):
        job.run(spec)
    pipeline.commit(job.run(spec))
    assert pipeline.rows(table) == pipeline.source_rows(table) == {(2, "a")}
    assert reads(pipeline, table) == {(1,): 1, (2,): 1}
    assert first.lsn is not None
    events = captured_events(pipeline, table, ("ID",), first.lsn)
    assert logged_events(pipeline, table) == events, "what came and went between two ticks is told, too"

    faults.reregister(pipeline.writer, pipeline.schema, "T")
    insert(pipeline, 4)
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table), "what is lost the snapshot mends"
    pipeline.passed()
    assert reads(pipeline, table) == {(1,): 1, (2,): 3, (4,): 2}


@pytest.mark.parametrize(
    "properties",
    [
        {"snapshot.mode": "when_needed"},
        pytest.param(SWITCHES, marks=pytest.mark.long),
        {"snapshot.mode": "custom", CUSTOM: f"{__name__}:Mending"},
    ],
    ids=["when_needed", "configuration_based", "custom"],
)
def test_a_mode_that_mends_a_gap_does_so_by_itself(
    new_pipeline: Callable[..., Pipeline], properties: dict[str, Any]
) -> None:
    pipeline = new_pipeline(**properties)
    table = table_of(pipeline)
    pipeline.tick()
    insert(pipeline, 2)
    pipeline.execute(f'DELETE FROM "{pipeline.schema}"."T" WHERE ID = 1')
    pipeline.writer.commit()
    pipeline.captured()
    faults.reregister(pipeline.writer, pipeline.schema, "T")
    insert(pipeline, 3)
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table) == {(2, "a"), (3, "a")}


@pytest.mark.long
def test_what_a_first_batch_left_behind_is_swept(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table, _ = table_of(pipeline, "T"), table_of(pipeline, "U")
    spec = pipeline.plan()
    assert spec is not None
    insert(pipeline, 2, "U")
    with killed("commit_batch", "before"):
        job.run(spec)
    assert pipeline.rows(table) == {(1, "a")}, "the state is filled, and nothing says so"
    pipeline.execute(f"DELETE FROM {table} WHERE ID = 1")
    pipeline.writer.commit()
    pipeline.captured()
    faults.reregister(pipeline.writer, pipeline.schema, "T")
    insert(pipeline, 3, "T")
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table) == {(3, "a")}


def test_include_list_and_a_select_of_ones_own(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    one, two = table_of(pipeline, "T"), table_of(pipeline, "U")
    insert(pipeline, 2, "T")
    pipeline.properties = {
        "snapshot.include.collection.list": str(one),
        "snapshot.select.statement.overrides": str(one),
        f"snapshot.select.statement.overrides.{one}": "SELECT * FROM NO.SUCH",
    }
    wrong = pipeline.tick()
    assert wrong is not None
    assert f"Correct snapshot.select.statement.overrides.{one}" in wrong.failed[0].error
    pipeline.properties = {
        **pipeline.properties,
        f"snapshot.select.statement.overrides.{one}": f'SELECT * FROM "{one.schema}"."{one.name}" WHERE ID = 2',
    }

    def move(_: int) -> None:
        pipeline.execute(f"DELETE FROM {one} WHERE ID = 1")
        pipeline.execute(f"INSERT INTO {one} VALUES (1, 'a')")
        pipeline.writer.commit()

    with behind("catch_up", move):
        pipeline.passed()
    assert set(reads(pipeline, one)) == {(2,)}
    assert pipeline.rows(one) == {(1, "a"), (2, "a")}, "a row is lost that was moved where no read had to find it"
    assert not reads(pipeline, two)


@pytest.mark.long
def test_when_needed_mends_a_table_that_new_ones_are_not_begun_with(new_pipeline: Callable[..., Pipeline]) -> None:
    """Its offset was lost; to begin it at the fence would lose what changed since the target's."""
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table, other = table_of(pipeline), table_of(pipeline, "U")
    pipeline.properties = {**pipeline.properties, "snapshot.include.collection.list": str(other)}
    pipeline.passed()
    insert(pipeline, 2)
    pipeline.passed()
    insert(pipeline, 3)
    pipeline.offsets.remove(table)

    pipeline.passed()

    # What the source had before the pipeline's first tick was not wanted then; to mend it reads all there is.
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_rows_of_the_signal_table_from_before_are_refused_by_a_retry_too(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "no_data"})
    table = table_of(pipeline)
    asked = json.dumps({"data-collections": [str(table)]})
    pipeline.execute(f"INSERT INTO {use_signal_table(pipeline)} VALUES ('old', 'execute-snapshot', ?)", asked)
    pipeline.writer.commit()
    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    with killed("read_signals", "before"):
        job.run(spec)

    result = job.run(spec)

    assert [(outcome.id, outcome.status) for outcome in result.signals] == [("old", "refused")]


def test_skipped_is_not_told_of_a_table_that_is_snapshotted_by_then(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "no_data"})
    table = table_of(pipeline)
    spec = pipeline.plan()
    assert spec is not None
    with killed("write_journal", "before"):
        job.run(spec)
    pipeline.offsets.put(Offset(table, Lsn(bytes(16)), 0, restart=True))
    assert "SKIPPED" not in [note.type for note in pipeline.passed().notifications]
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
def test_skipped_is_told_once_whatever_dies_before_it_is(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "no_data"})
    table = table_of(pipeline)
    for step in ("commit_batch", "write_journal"):
        spec = pipeline.plan()
        assert spec is not None
        with killed(step, "before"):
            job.run(spec)

    first = pipeline.passed()
    insert(pipeline, 2)
    second = pipeline.passed()

    [note] = first.notifications
    assert second.notifications == ()
    assert (note.aggregate_type, note.type) == ("Initial Snapshot", "SKIPPED")
    assert note.additional_data["data_collections"] == str(table)


def test_answer_of_a_signal_that_comes_again_is_told_last(new_pipeline: Callable[..., Pipeline]) -> None:
    """So that whoever looks for the newest answer under its id does not find another signal's refusal."""
    pipeline = new_pipeline(**{"snapshot.mode": "no_data"})
    table_of(pipeline)
    pipeline.passed()
    one, other = (Signal("nightly", "log", json.dumps({"message": text}), "airflow") for text in ("one", "other"))

    result = pipeline.passed(one, other, one)

    assert [(told.id, told.status) for told in result.signals] == [(other.id_again, "refused"), ("nightly", "done")]
