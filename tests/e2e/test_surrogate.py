"""A table in chunks by a column other than its key. Its values move across the bounds during the reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.filled import ask, changed
from support.history import WEIGHTS, HistoryOptions, random_history
from support.log import captured_events, check_log, logged_events
from support.pipeline import Pipeline
from support.writing import after_each, writing

from airflow_provider_db2cdc.cdc.table import TableId

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

RESTING = range(1000, 1020)
"""Values that the writer never has: this process must not wait for its locks."""


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rows_that_move_across_chunks_of_a_surrogate_key_are_read_once(
    new_pipeline: Callable[..., Pipeline], seed: int
) -> None:
    """The key S stays. The chunks are by ID, which the history shifts, swaps and moves."""
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 8, "snapshot.group.chunks": 1})
    weights = {**WEIGHTS, "move": 6, "shift": 8, "swap": 6}
    options = HistoryOptions(transactions=3000, lanes=1, width=24, composite=False, weights=weights)
    table = TableId(pipeline.schema, "T0")
    key = "S INTEGER NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    pipeline.create(f"CREATE TABLE {table} ({key}, ID INTEGER NOT NULL UNIQUE, A INTEGER, B VARCHAR(9))", table.name)
    rows = [*random_history(seed, options).initial[table.name], *((at, at, None) for at in RESTING)]
    pipeline.many(f"INSERT INTO {table} (ID, A, B) VALUES (?, ?, ?)", rows)
    pipeline.captured()

    def move(read: int) -> None:
        """Take one row out of what is still to be read, and put one there again that was read."""
        last, first = RESTING[-read], RESTING[0]
        if read <= 3:
            changed(
                pipeline,
                f"UPDATE {table} SET ID = {-1000 - read} WHERE ID = {last}",
                f"UPDATE {table} SET ID = {2000 + read}, A = {read} WHERE ID = {first if read == 1 else 1999 + read}",
            )

    with writing(pipeline, seed, options, pause_s=0.1):
        first = pipeline.passed()
        with after_each("stage_rows", move):
            result = pipeline.passed(ask(table, **{"surrogate-key": "ID"}))
        assert [one.status for one in result.signals] == ["done"]
        assert (result.snapshots[-1].chunks or 0) >= 3
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
    start = first.tables[0].after
    assert start is not None
    assert logged_events(pipeline, table) == captured_events(pipeline, table, ("S",), start)
    assert pipeline.changes(table).where("op = 'd' AND source.snapshot <> 'false'").isEmpty(), "nothing was deleted"
