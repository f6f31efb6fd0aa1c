"""Every type of SQL Replication and the sandbox is the same in the target, with NULLs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.table import TableId

pytestmark = [pytest.mark.spark, pytest.mark.sandbox]

TYPES: dict[str, list[Any]] = {
    "SMALLINT": [-32768, 32767],
    "INTEGER": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "DECIMAL(31,0)": [Decimal(-(10**31) + 1), Decimal(10**31 - 1)],
    "DECIMAL(31,31)": [Decimal("0.0000000000000000000000000000001"), Decimal("-0.9999999999999999999999999999999")],
    "DECIMAL(9,2)": [Decimal("-1234567.89"), Decimal("0.00")],
    "REAL": [1.5, -0.25],
    "DOUBLE": [1.7976931348623157e308, 5e-308],
    "CHAR(5)": ["ab", "     "],
    "VARCHAR(20)": ["", "trailing  "],
    "VARCHAR(30)": ["äöü ß € 漢字", 'it\'s "quoted"; \\ and\ttab\n'],
    "CHAR(6)": ["\U0001f600abc", "\U0001f600"],
    "CHAR(4) FOR BIT DATA": [b"\x00\x01\xff\xfe", b"    "],
    "VARCHAR(8) FOR BIT DATA": [b"", b"\x00\xff"],
    "DATE": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "TIME": [dt.time(0, 0, 0), dt.time(23, 59, 59)],
    "TIMESTAMP": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
}
DST = dt.datetime(2024, 3, 31, 2, 30)


def test_types_are_equal_after_snapshot_and_changes(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    columns = ", ".join(f'"C{at}" {type_}' for at, type_ in enumerate(TYPES))
    table = pipeline.create(
        f'CREATE TABLE "{pipeline.schema}"."TYPES" (ID INTEGER NOT NULL PRIMARY KEY, {columns}, L CLOB(1K))', "TYPES"
    )
    rows = [tuple(values[at % 2] for values in TYPES.values()) for at in range(2)]
    write(pipeline, table, {1: rows[0], 2: rows[1], 3: (None,) * len(TYPES)})
    pipeline.captured()

    pipeline.passed()
    assert pipeline.rows(table) == expected({1: rows[0], 2: rows[1], 3: (None,) * len(TYPES)})
    stamp = [*rows[0][:-1], DST]
    write(pipeline, table, {4: rows[1], 5: tuple(stamp), 6: (None,) * len(TYPES)})
    pipeline.execute(f'DELETE FROM "{table.schema}"."{table.name}" WHERE ID = 1')
    pipeline.execute(f'UPDATE "{table.schema}"."{table.name}" SET "C9" = \'new\' WHERE ID = 2')
    pipeline.writer.commit()
    pipeline.captured()
    assert pipeline.tick() is not None
    after = {2: (*rows[1][:9], "new", *rows[1][10:]), 3: (None,) * len(TYPES)}
    assert pipeline.rows(table) == expected({**after, 4: rows[1], 5: tuple(stamp), 6: (None,) * len(TYPES)})
    assert "L" not in pipeline.state(table).columns  # change tables carry no LOB data


def write(pipeline: Pipeline, table: TableId, rows: dict[int, tuple[Any, ...]]) -> None:
    marks = ", ".join("?" * (len(TYPES) + 1))
    for number, row in rows.items():
        pipeline.execute(
            f'INSERT INTO "{table.schema}"."{table.name}" VALUES ({marks}, NULL)', number, *map(bound, row)
        )
    pipeline.writer.commit()


def bound(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def expected(rows: dict[int, tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """Return rows as Delta gives them: CHAR padded as the source does (Derby counts UTF-16 units), TIME as text."""
    found = set()
    for number, row in rows.items():
        values: list[object] = [number]
        for type_, value in zip(TYPES, row, strict=True):
            if isinstance(value, str) and type_.startswith("CHAR"):
                values.append(value + " " * (int(type_[5:-1]) - len(value.encode("utf-16-le")) // 2))
            elif isinstance(value, dt.time):
                values.append(value.isoformat())
            else:
                values.append(value)
        found.add(tuple(values))
    return found
