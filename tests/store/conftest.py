"""What the tests of the object store share: one S3 server, and pipelines whose target is in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.object_store import ObjectStore, object_store
from support.stored import StoredPipeline

if TYPE_CHECKING:
    from airflow_provider_db2cdc.sandbox.server.service import Sandbox


@pytest.fixture(scope="session")
def store() -> Iterator[ObjectStore]:
    """A running S3 server."""
    with object_store() as running:
        yield running


@pytest.fixture
def login(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The login to the store, in the environment of the jobs."""
    for name, value in store.login.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def new_stored(
    captured_sandbox: Sandbox, store: ObjectStore, login: None, tmp_path: Path
) -> Iterator[Callable[..., StoredPipeline]]:
    """Make pipelines whose target is in the store, each with a schema of its own."""
    made: list[StoredPipeline] = []

    def make(**properties: Any) -> StoredPipeline:
        folder = tmp_path / f"p{len(made)}"
        folder.mkdir()
        made.append(StoredPipeline(captured_sandbox, store, folder, properties))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()
    assert not [name for name in os.listdir(tmp_path) if not name.startswith("p")]
