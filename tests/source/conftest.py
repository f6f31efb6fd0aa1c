"""A running sandbox without a capture agent, and control tables in it that the tests fill themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.control_tables import ControlTables
from support.sandbox_source import JARS, CountingSource, address_of

from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.sandbox.capture.statement import Connection
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.source.address import Db2Address


@pytest.fixture(scope="session")
def silent_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The sandbox's database, in which nothing captures."""
    if not list(Path(JARS).glob("*derbynet*.jar")):
        pytest.skip(f"no Derby jars in {JARS}")
    with Sandbox.start(tmp_path_factory.mktemp("silent"), capture=False, jars=JARS) as running:
        yield running


@pytest.fixture(scope="session")
def address(silent_sandbox: Sandbox) -> Db2Address:
    return address_of(silent_sandbox)


@pytest.fixture(scope="session")
def connection(silent_sandbox: Sandbox) -> Iterator[Connection]:
    """A DB-API connection in autocommit, to prepare things with."""
    connection = silent_sandbox.connect()
    connection.set_autocommit(True)
    yield connection
    connection.close()


@pytest.fixture
def control(connection: Connection) -> ControlTables:
    """New control tables. The capture position is 100."""
    tables = ControlTables(connection)
    tables.synch(100)
    return tables


@pytest.fixture
def source(address: Db2Address) -> Iterator[CountingSource]:
    with CountingSource(address) as source:
        yield source


@pytest.fixture
def config(control: ControlTables) -> PipelineConfig:
    return PipelineConfig(pipeline="p", target="/lake/p", asn_schema=control.asn, max_rows_per_batch=10)
