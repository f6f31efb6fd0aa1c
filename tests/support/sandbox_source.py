"""The sandbox as the tests of this folder reach it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.sandbox.server.state import DRIVER_OPTIONS
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql.query import Query

JARS = os.environ.get("DB2CDC_SANDBOX_JARS") or str(Path(__file__).parents[2] / "build" / "jars" / "sandbox")


class CountingSource(Source):
    """A source that knows how many statements it was asked for."""

    statements = 0

    def rows(self, query: Query) -> list[tuple[Any, ...]]:
        self.statements += 1
        return super().rows(query)


def address_of(sandbox: Sandbox) -> Db2Address:
    """Return where a running sandbox is."""
    login = (sandbox.user, sandbox.password)
    return Db2Address("127.0.0.1", sandbox.database, *login, sandbox.port, options=DRIVER_OPTIONS)
