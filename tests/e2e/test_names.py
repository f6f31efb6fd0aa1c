"""Tables with odd names, from their registration to reads of the target."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, unquote

import pytest
from deltalake import DeltaTable, QueryBuilder
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.source.preflight.checks import preflight

pytestmark = [pytest.mark.spark, pytest.mark.sandbox]

NAMES = ["受注 😀 ŞİRKET", "T ", " T", "/BIC/F%20#~=-_.", '_odd "a;b".c,d(e)']
KEY = '"k ""e"".y"'
COLUMNS = {"😀": "INTEGER", "É ": "VARCHAR(20)"}
VALUES = ["a", "😀 ", "Ş", " "]


@pytest.mark.slow
def test_a_table_of_any_name_is_replicated(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    tables = [TableId(pipeline.schema, name) for name in NAMES]
    columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    for table in tables:
        name = sql_name(table)
        pipeline.create(f"CREATE TABLE {name} ({KEY} INTEGER NOT NULL PRIMARY KEY, {columns})", table.name)
        for number, value in enumerate(VALUES):
            pipeline.execute(f"INSERT INTO {name} VALUES ({number}, 12, '{value}')")
    pipeline.writer.commit()
    pipeline.captured()
    with pipeline.source() as source:
        bad = [check for check in preflight(source, pipeline.config, pipeline.offsets.read()) if not check.ok]
    assert [check for check in bad if check.level == "error"] == []
    pipeline.passed()
    for table in tables:
        name = sql_name(table)
        pipeline.execute(f'UPDATE {name} SET "😀" = 34 WHERE "É " = \'😀 \'')
        pipeline.execute(f"DELETE FROM {name} WHERE {KEY} = 0")
    pipeline.writer.commit()
    pipeline.captured()
    pipeline.passed()
    for table in tables:
        rows = {(number, 34 if value == "😀 " else 12, value) for number, value in enumerate(VALUES) if number}
        assert pipeline.rows(table) == set(pipeline.query(f"SELECT * FROM {sql_name(table)}")) == rows
        told = pipeline.changes(table).where("op IS NOT NULL").select("source.schema", "source.table").distinct()
        assert [tuple(row) for row in told.collect()] == [(table.schema, table.name)]
        place = Layout(pipeline.target).state(table).name
        assert quote(place) == unquote(place) == place
        assert rows_by_delta_rs(place) == rows
        assert DeltaTable(Layout(pipeline.target).changes(table).name).schema().fields


def sql_name(table: TableId) -> str:
    """Return the table's name in SQL."""
    return ".".join(f'"{name.replace(chr(34), 2 * chr(34))}"' for name in (table.schema, table.name))


def rows_by_delta_rs(place: str) -> set[tuple[object, ...]]:
    """Return the table's rows as delta-rs reads them, without the columns that the pipeline adds."""
    found = QueryBuilder().register("t", DeltaTable(place)).execute("SELECT * FROM t").read_all()
    columns = [found.column(name).to_pylist() for name in found.schema.names if not name.startswith("__")]
    return set(zip(*columns, strict=True))
