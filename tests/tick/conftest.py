"""What the ticks in memory share, and the tables that both implementations of a port are held to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.memory_twin import MemoryTwin
from support.port_table import NewTable, Table


@pytest.fixture(scope="session")
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One source schema and one target for the tables of all tests: each costs more than a table does."""
    from support.delta_twin import Lake
    from support.ended import end_capture
    from support.pipeline import Pipeline

    sandbox, spark = request.getfixturevalue("captured_sandbox"), request.getfixturevalue("spark")
    made = Lake(Pipeline(sandbox, spark, tmp_path_factory.mktemp("port")))
    yield made
    end_capture(made.pipeline.writer, made.pipeline.schema)
    made.pipeline.writer.close()


@pytest.fixture
def new_table(kind: str, request: pytest.FixtureRequest) -> NewTable:
    """Make tables of one kind of implementation, with or without a key."""
    if kind == "memory":
        return lambda is_keyed: Table(MemoryTwin(is_keyed))

    def make(is_keyed: bool) -> Table:
        from support.delta_twin import DeltaTwin

        return Table(DeltaTwin(request.getfixturevalue("lake"), is_keyed))

    return make
