"""Rows that have values in a column that their table has gained."""

from __future__ import annotations

import random

from airflow_provider_db2cdc.cdc.table import TableId
from support.operation import TableShape
from support.pipeline import Writes, gain_column


def gain_with_row(writes: Writes, shape: TableShape, column: str, at: int) -> None:
    """Add a column to a history's table, and a row with a value in it that the history does not know."""
    gain_column(writes, TableId(writes.schema, shape.name), column)
    names = ", ".join(f'"{name}"' for name in (*shape.key, column))
    values = ", ".join([str(1000 + at)] * len(shape.key) + ["1"])
    writes.execute(f'INSERT INTO "{writes.schema}"."{shape.name}" ({names}) VALUES ({values})')
    writes.writer.commit()


def change_gained(writes: Writes, table: TableId, column: str, rng: random.Random) -> None:
    """Give some rows another value in a column that a table has gained."""
    value, of = rng.randint(1, 9), rng.randint(0, 1)
    writes.execute(f'UPDATE "{table.schema}"."{table.name}" SET "{column}" = {value} WHERE A = {of}')
    writes.writer.commit()
