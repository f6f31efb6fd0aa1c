from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker import JARS, Broker, running_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker for all tests; each takes a topic of its own."""
    if not list(JARS.glob("*.jar")):
        pytest.skip(f"no jars of a broker in {JARS}: fetch them with `db2cdc jars --kafka --into build/jars`")
    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running
