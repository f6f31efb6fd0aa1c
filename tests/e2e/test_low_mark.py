"""Changes captured before the request of a snapshot do not override its read, which may be newer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import check_log, logged_events
from support.pipeline import Pipeline, use_signal_table
from support.writing import after_each, once_before

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture import control_tables, faults
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.long]


def has_values_first(pipeline: Pipeline, table: TableId) -> None:
    """Add a column, give each row a value by a transaction of its own, and only then have the column captured."""
    pipeline.execute(f"ALTER TABLE {table} ADD COLUMN B INTEGER")
    pipeline.writer.commit()
    for (id_,) in pipeline.query(f"SELECT ID FROM {table}"):
        pipeline.execute(f"UPDATE {table} SET B = 5 WHERE ID = {id_}")
        pipeline.writer.commit()
    control_tables.addcolumn(pipeline.writer, table.schema, table.name, "B")


def load_after_a_captured_change(pipeline: Pipeline, table: TableId) -> None:
    """Change a row while capture lags, and then once more so that it is never captured."""
    pipeline.execute(f"UPDATE {table} SET A = 'seen' WHERE ID = 1")
    pipeline.writer.commit()
    pipeline.unseen(table, f"UPDATE {table} SET A = 'loaded' WHERE ID = 1")


@contextmanager
def lagging(pipeline: Pipeline) -> Iterator[None]:
    """Capture writes no change rows until it is waited for, or a chunk was read without that."""

    def resume() -> None:
        faults.resume(pipeline.writer)

    faults.pause(pipeline.writer)
    try:
        with once_before("await_low_mark", resume), after_each("stage_rows", lambda _: resume()):
            yield
    finally:
        resume()


def read_uncaptured_signals(pipeline: Pipeline) -> str:
    """Have the pipeline read the signals of a table that is not captured. Return its name in SQL."""
    signals = f"{pipeline.schema}.SIGNALS"
    heard = {"signal.data.collection": signals, "signal.enabled.channels": "source"}
    pipeline.properties = {**pipeline.properties, **heard}
    pipeline.execute(f"CREATE TABLE {signals} (ID VARCHAR(9) NOT NULL PRIMARY KEY, TYPE VARCHAR(32), DATA VARCHAR(99))")
    return signals


def request_in(pipeline: Pipeline, signals: str, table: TableId) -> None:
    data = json.dumps({"data-collections": [str(table)]})
    pipeline.execute(f"INSERT INTO {signals} VALUES ('mend', 'execute-snapshot', '{data}')")
    pipeline.writer.commit()


def check(pipeline: Pipeline, table: TableId) -> None:
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


@pytest.mark.parametrize(
    "properties",
    [{"max.rows.per.batch": 2}, {"snapshot.mode": "initial_only"}],
    ids=["a row limit", "no streaming"],
)
def test_a_column_that_had_values_before_it_was_captured(
    new_pipeline: Callable[..., Pipeline], properties: dict[str, object]
) -> None:
    """The earlier changes are not pulled yet, and have null there."""
    pipeline = new_pipeline(**properties)
    table = filled(pipeline, 5)
    pipeline.passed()
    has_values_first(pipeline, table)
    pipeline.captured()
    result = pipeline.passed(ask(table))
    assert {row[2] for row in pipeline.rows(table)} == {5}
    assert (result.snapshots[-1].status, result.snapshots[-1].rows) == ("completed", 5)
    check(pipeline, table)


def test_a_column_that_had_values_while_capture_lags(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 5)
    pipeline.passed()
    with lagging(pipeline):
        has_values_first(pipeline, table)
        pipeline.passed(ask(table))
    assert {row[2] for row in pipeline.rows(table)} == {5}
    check(pipeline, table)


def test_an_uncaptured_change_after_one_that_a_tick_has_not_pulled(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """LOAD REPLACE does so. The signal is read by a tick with a plan older than both changes."""
    pipeline = new_pipeline()
    signals = use_signal_table(pipeline)
    table, other = filled(pipeline, 5, "T1"), filled(pipeline, 5, "T2")
    pipeline.passed()

    def load(number: int) -> None:
        if number > 1:
            return
        changed(pipeline, f"UPDATE {table} SET A = 'seen' WHERE ID = 1", f"INSERT INTO {table} VALUES (50, 'seen')")
        pipeline.unseen(table, f"UPDATE {table} SET A = 'loaded' WHERE ID = 1", f"DELETE FROM {table} WHERE ID = 50")
        data = json.dumps({"data-collections": [str(table)]})
        changed(pipeline, f"INSERT INTO {signals} VALUES ('mend', 'execute-snapshot', '{data}')")

    with after_each("stage_rows", load):
        result = pipeline.passed(ask(other))
    assert ("mend", "done") in [(one.id, one.status) for one in result.signals]
    assert (1, "loaded") in pipeline.rows(table)
    check(pipeline, table)


def test_a_retry_begins_a_received_request_at_its_own_low_watermark(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """The plan is still the old one. The journal shows that a request came later."""
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 3, "snapshot.group.chunks": 1})
    signals = read_uncaptured_signals(pipeline)
    table, other = filled(pipeline, 5, "T1"), filled(pipeline, 5, "T2")
    pipeline.passed()
    spec = pipeline.plan(signals=[ask(other)])
    assert spec is not None

    def load(group: int) -> None:
        if group == 1:
            request_in(pipeline, signals, table)
        else:
            faults.pause(pipeline.writer)
            load_after_a_captured_change(pipeline, table)

    with after_each("settle_table_snapshot", load), killed("write_journal", "after", at=3):
        job.run(spec)
    resumed = threading.Timer(2.0, faults.resume, [pipeline.writer])
    with once_before("await_low_mark", resumed.start):
        result = job.run(spec)
    resumed.join()
    assert [(one.id, one.status) for one in result.snapshots] == [("ask", "completed"), ("mend", "completed")]
    assert (1, "loaded") in pipeline.rows(table)
    check(pipeline, table)


def test_a_restart_repairs_an_uncaptured_change_while_capture_lags(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 5)
    pipeline.passed()
    with lagging(pipeline):
        load_after_a_captured_change(pipeline, table)
        pipeline.restart(table)
        pipeline.passed()
    assert not logged_events(pipeline, table), "the restart begins after the changes captured by then"
    assert (1, "loaded") in pipeline.rows(table)
    check(pipeline, table)
