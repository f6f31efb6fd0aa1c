import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from airflow_provider_db2cdc.demo import shop, writer
from airflow_provider_db2cdc.demo.writer import WEIGHTS, Desk, Writers, open_desk
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, fetch
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.sandbox

LANES = 2
KINDS = {"inserted", "updated", "deleted", "keys shifted", "commits", "rollbacks"}


@pytest.fixture(scope="session")
def shop_sandbox(captured_sandbox: Sandbox) -> Sandbox:
    with closing(captured_sandbox.connect()) as connection:
        counts = shop.build(connection, 400)
    assert set(counts) == set(shop.TABLES)
    assert 390 < sum(counts.values()) < 410
    return captured_sandbox


@pytest.fixture
def connection(shop_sandbox: Sandbox) -> Iterator[Connection]:
    with closing(shop_sandbox.connect()) as connection:
        yield connection


def desk(connection: Connection, lane: int = 0) -> Desk:
    return open_desk(connection, random.Random(5), lane, LANES)


def holdings(desk: Desk) -> tuple[set[int], dict[int, tuple[int, ...]]]:
    return set(desk.customers), {key: tuple(sorted(numbers)) for key, numbers in desk.orders.items()}


@pytest.mark.parametrize("work", WEIGHTS, ids=lambda work: work.__name__)
def test_each_work_changes_rows_and_the_clerk_knows_the_rows(
    connection: Connection, work: Callable[[Desk], None]
) -> None:
    mine, others = desk(connection), desk(connection, lane=1)
    draft = mine.draft()
    work(draft)
    connection.commit()
    assert sum(draft.done.values()) > 0
    assert holdings(draft) == holdings(desk(connection))
    assert holdings(others) == holdings(desk(connection, lane=1))


def test_what_is_rolled_back_is_forgotten(connection: Connection) -> None:
    mine = desk(connection)
    before = holdings(mine)
    for work in WEIGHTS:
        work(mine.draft())
        connection.rollback()
    assert holdings(mine) == before == holdings(desk(connection))


def test_writers_change_every_table_in_every_way_and_capture_has_it(
    shop_sandbox: Sandbox, connection: Connection
) -> None:
    with Writers(shop_sandbox.connect, LANES, rate=60) as writers:
        deadline = time.monotonic() + 60
        while not (set(writers.counts) >= KINDS and writers.counts["commits"] > 100) and time.monotonic() < deadline:
            time.sleep(0.1)
    writers.check()
    assert set(writers.counts) >= KINDS
    await_captured(connection, 30)
    for table in shop.TABLES:
        seen = fetch(connection, f"SELECT DISTINCT IBMSNAP_OPERATION FROM ASNCDC.CDC_SHOP_{table.name}")
        assert {row[0] for row in seen} == {"D", "I"}


def test_a_clerk_whose_connection_is_refused_tries_again(
    shop_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RECONNECT_S", 0.01)
    refusals = iter([True, True])

    def connect() -> Connection:
        if next(refusals, False):
            raise ConnectionError("refused")
        connection: Connection = shop_sandbox.connect()
        return connection

    with Writers(connect, number=1, rate=60) as writers:
        deadline = time.monotonic() + 30
        while not writers.counts["commits"] and time.monotonic() < deadline:
            time.sleep(0.05)
    writers.check()
    assert writers.counts["lost"] == 2
    assert writers.counts["commits"] > 0


def test_a_clerk_that_never_connects_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RECONNECT_S", 0.001)

    def connect() -> Connection:
        raise ConnectionError("refused")

    with Writers(connect, number=1) as writers:
        deadline = time.monotonic() + 30
        while writers.counts["lost"] < writer.LOST_IN_A_ROW and time.monotonic() < deadline:
            time.sleep(0.01)
    with pytest.raises(SourceError, match="a writer gave up: refused"):
        writers.check()
