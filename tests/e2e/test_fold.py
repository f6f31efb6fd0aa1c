"""Readers that keep the last event of each key, at every commit: docs/how-to/read-the-change-log.md says how."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from support.filled import ask
from support.log import captured_events, check_log, folded, logged_events
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.apply import change_pull
from airflow_provider_db2cdc.spark.delta.table_io import load

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-the-change-log.md"
STATEMENTS = (
    "UPDATE {0} SET ID = ID + 1",
    "UPDATE {0} SET ID = ID - 1",
    "UPDATE {0} SET ID = 11 - ID WHERE ID BETWEEN 0 AND 11",
    "UPDATE {0} SET A = A WHERE ID BETWEEN 3 AND 5",
    "UPDATE {0} SET A = A + 1 WHERE ID = 4",
    "DELETE FROM {0} WHERE ID BETWEEN 6 AND 7",
    "INSERT INTO {0} SELECT ID + 30, A FROM {0} WHERE ID IN (1, 2) AND NOT EXISTS (SELECT 1 FROM {0} WHERE ID > 20)",
    "DELETE FROM {0} WHERE ID > 20",
)
"""Statements on rows that often differ only in their keys. The new keys of each statement are free."""


class Watch:
    """Tables of a pipeline, and what they held after each commit."""

    def __init__(self, pipeline: Pipeline, *tables: TableId) -> None:
        self.pipeline, self.tables = pipeline, tables
        self.seen: list[tuple[Lsn, dict[TableId, set[Any]]]] = []

    def commit(self, *statements: str) -> None:
        """Do a transaction, and keep what the tables hold after it."""
        for statement in statements:
            self.pipeline.execute(statement)
        self.pipeline.writer.commit()
        at = self.pipeline.captured()
        self.seen.append((at, {table: self.pipeline.source_rows(table) for table in self.tables}))

    def check(self) -> None:
        """A reader has the tables' rows at every commit, and the state after each batch."""
        commits = load(self.pipeline.spark, Layout(self.pipeline.target).internal("commits"))
        for table in self.tables:
            for at, rows in self.seen:
                assert folded(self.pipeline, table, at) == rows[table], (table, at)
            own = commits.where((commits.schema == table.schema) & (commits.table == table.name))
            for batch, version in own.select("batch", "state_version").collect():
                state = load(self.pipeline.spark, Layout(self.pipeline.target).state(table), version)
                held = {tuple(row) for row in state.select("ID", "A").collect()}
                log = self.pipeline.changes(table).where(f"__batch <= {batch}").select("key", "after").collect()
                last = {row["key"]: row["after"] for row in log}
                assert {tuple(row) for row in last.values() if row is not None} == held, (table, batch)
            check_log(self.pipeline, table)


def table_of(pipeline: Pipeline, name: str, rows: list[tuple[int, int]]) -> TableId:
    ddl = f"CREATE TABLE {pipeline.schema}.{name} (ID INTEGER NOT NULL PRIMARY KEY, A INTEGER)"
    table = pipeline.create(ddl, name)
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", rows)
    return table


def test_readers_of_the_change_log_have_the_rows_of_every_commit(new_pipeline: Callable[..., Pipeline]) -> None:
    """Shifts and swaps of different and equal rows, new rows captured before their old ones, and no key."""
    pipeline = new_pipeline()
    orders = table_of(pipeline, "ORDERS", [(at, at * 7) for at in range(1, 1001)])
    alike = table_of(pipeline, "ALIKE", [(at, 0) for at in range(1, 11)])
    late = table_of(pipeline, "LATE", [(2, 2), (3, 3)])
    bare = pipeline.create(f"CREATE TABLE {pipeline.schema}.NOTES (A INTEGER, V VARCHAR(9))", "NOTES")
    insert = f"INSERT INTO {bare} VALUES (?, ?)"
    pipeline.many(insert, [(at % 3, None) for at in range(10)])
    watch = Watch(pipeline, orders, alike, late)
    pipeline.captured()
    first = pipeline.passed()
    watch.commit(f"UPDATE {orders} SET ID = ID + 1", f"UPDATE {alike} SET ID = 11 - ID")
    watch.commit(f"UPDATE {alike} SET ID = ID + 1", f"UPDATE {late} SET A = 9 WHERE ID = 2")
    pipeline.execute(
        f"UPDATE ASNCDC.CDC_{late.schema}_LATE SET IBMSNAP_INTENTSEQ = X'7F{'FF' * 15}' WHERE IBMSNAP_OPERATION = 'D'"
    )
    pipeline.writer.commit()
    watch.commit(f"INSERT INTO {late} VALUES (4, 4)", f"DELETE FROM {late} WHERE ID = 4")
    watch.commit(f"UPDATE {bare} SET V = 'new' WHERE A = 1", f"DELETE FROM {bare} WHERE A = 2")
    pipeline.passed(ask(bare))
    pipeline.many(insert, [(2, None), (0, None)])
    watch.commit(f"DELETE FROM {orders} WHERE ID = 5")
    pipeline.passed()
    watch.check()
    start = first.tables[0].after
    assert start is not None
    for table in watch.tables:
        assert logged_events(pipeline, table) == captured_events(pipeline, table, ("ID",), start)
    last = pipeline.changes(late).where("key.ID = 2 AND op <> 'r'").collect()[-1]
    assert (last["op"], last["__ordinal"]) == ("c", 2)
    assert last["source"]["change_lsn"] < last["__intent_lsn"]
    check_page(pipeline, orders, bare)


def check_page(pipeline: Pipeline, keyed: TableId, bare: TableId) -> None:
    """Check that the statements of the page give the rows of the source."""

    def here(text: str) -> str:
        for name, table in (("ORDERS", keyed), ("NOTES", bare)):
            text = text.replace(f"/lake/sales/changes/SALES/{name}", Layout(pipeline.target).changes(table).name)
        return text

    [python], [sql, counting] = blocks("python"), blocks("sql")
    names: dict[str, Any] = {"spark": pipeline.spark}
    exec(here(python), names)
    held = Counter(pipeline.source_rows(keyed))
    assert rows_in(names["rows"]) == held
    assert rows_in(pipeline.spark.sql(here(sql))) == held
    copies = Counter(pipeline.query(f"SELECT * FROM {bare}"))
    found = pipeline.spark.sql(here(counting)).collect()
    assert {tuple(row[:-1]): row[-1] for row in found} == copies
    assert len(copies) == 3


def transactions(rng: random.Random, table: TableId, count: int) -> Iterator[list[str]]:
    for _ in range(count):
        yield [statement.format(table) for statement in rng.choices(STATEMENTS, k=rng.choice((1, 1, 2, 3)))]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_statements_over_many_keys_are_right_at_every_commit(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """There are snapshots in between. One of them finds uncaptured changes. Batches count as large ones."""
    monkeypatch.setattr(change_pull, "SMALL_ROWS", 0)
    rng = random.Random(seed)
    pipeline = new_pipeline(**{"max.rows.per.batch": 60, "incremental.snapshot.chunk.size": 5})
    table = table_of(pipeline, "T", [(at, at // 4) for at in range(1, 11)])
    watch = Watch(pipeline, table)
    pipeline.captured()
    pipeline.passed()
    for number, statements in enumerate(transactions(rng, table, 12)):
        watch.commit(*statements)
        if number == 5:
            pipeline.to_its_end()
            pipeline.unseen(table, f"DELETE FROM {table} WHERE ID < 3", f"INSERT INTO {table} VALUES (-5, 1)")
        if number % 3 == 2:
            pipeline.passed(ask(table, f"ask{number}"))
    pipeline.to_its_end()
    watch.check()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def rows_in(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())
