"""Tables of many rows, of many columns, or of long rows: how they are created, filled and changed."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture import control_tables
from support.pipeline import Pipeline

STEP = 1000
"""Rows of a change's statement."""

MOST_AT_ONCE = 500_000
"""Rows of a statement that fills a table. Derby's heap holds a lock for each of them."""


@dataclass(frozen=True)
class Shape:
    """A table's columns, a first row with its values, a further row by an existing one, and an update of a row.

    A further row is without its ID. In it `{have}` is the number of existing rows, and `{n}` a smaller number that also
    differs.
    """

    columns: str
    first: str
    further: str
    update: str
    values: tuple[object, ...] = ()


NARROW = Shape(
    "ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(20), AMOUNT DECIMAL(12,2), CHANGED TIMESTAMP",
    "VALUES (0, 'name', 12.50, CURRENT_TIMESTAMP)",
    "'name ' || TRIM(CHAR(ID + {have})), AMOUNT + {n}, CHANGED",
    "AMOUNT = AMOUNT + 1",
)
KINDS = (
    ("INTEGER", "7", "{c} + {n}"),
    ("VARCHAR(20)", "'some text'", "'text ' || TRIM(CHAR(ID + {have}))"),
    ("DECIMAL(12,2)", "12.50", "{c} + {n}"),
    ("DATE", "CURRENT_DATE", "{c}"),
    ("BIGINT", "99999999999", "{c} + ID"),
)
LONG_TEXT = 32_672
"""Characters of Db2's longest VARCHAR."""


def many_columns(columns: int) -> Shape:
    """Return a table of so many columns of five types."""
    kinds = [(f"C{at}", *KINDS[at % len(KINDS)]) for at in range(1, columns)]
    return Shape(
        ", ".join(["ID INTEGER NOT NULL PRIMARY KEY", *(f"{name} {kind}" for name, kind, _, _ in kinds)]),
        f"VALUES ({', '.join(['0', *(value for _, _, value, _ in kinds)])})",
        ", ".join(further.replace("{c}", name) for name, _, _, further in kinds),
        "C1 = 'changed'",
    )


def long_rows(texts: int = 32) -> Shape:
    """Return a table whose rows have so many texts of the greatest length. Each row rotates them by another number."""
    draw = random.Random(1)
    names = [f"C{at}" for at in range(1, texts + 1)]
    rotated = (f"SUBSTR({name}, {{have}} + 1) || SUBSTR({name}, 1, {{have}})" for name in names)
    return Shape(
        ", ".join(["ID INTEGER NOT NULL PRIMARY KEY", *(f"{name} VARCHAR({LONG_TEXT})" for name in names)]),
        f"VALUES (0, {', '.join('?' * texts)})",
        ", ".join(rotated),
        "C1 = SUBSTR(C1, 2) || SUBSTR(C1, 1, 1)",
        tuple("".join(draw.choices(string.ascii_letters, k=LONG_TEXT)) for _ in names),
    )


def fill(pipeline: Pipeline, name: str, rows: int, shape: Shape) -> TableId:
    """Return a registered table of so many rows. It is filled before anything is captured, by doubling."""
    table = TableId(pipeline.schema, name)
    quoted = f'"{table.schema}"."{table.name}"'
    pipeline.execute(f"CREATE TABLE {quoted} ({shape.columns})")
    if rows:
        pipeline.execute(f"INSERT INTO {quoted} {shape.first}", *shape.values)
    have = 1
    while have < rows:
        more = min(have, rows - have, MOST_AT_ONCE)
        further = shape.further.format(n=have % 97, have=have)
        pipeline.execute(f"INSERT INTO {quoted} SELECT ID + {have}, {further} FROM {quoted} WHERE ID < {more}")
        pipeline.writer.commit()
        have += more
    control_tables.addtable(pipeline.writer, table.schema, table.name)
    return table


def change(
    pipeline: Pipeline,
    table: TableId,
    shape: Shape,
    changes: int,
    after_step: Callable[[int], object] = lambda at: None,
) -> None:
    """Commit changes in small transactions: half updates, a quarter inserts, a quarter deletes.

    A table filled by `fill` keeps its number of rows: each step inserts as many rows above the highest ID as it deletes
    at the lowest. `after_step` gets the number of each step.
    """
    name = f'"{table.schema}"."{table.name}"'
    [(rows,)] = pipeline.query(f"SELECT COUNT(*) FROM {name}")
    step = max(1, min(STEP, changes // 4, rows // 4))
    further = shape.further.format(n=1, have=1)
    for at in range(changes // (4 * step)):
        middle, lowest = at * step + rows // 2, f"WHERE ID >= {at * step} AND ID < {(at + 1) * step}"
        for text in (
            f"UPDATE {name} SET {shape.update} WHERE ID >= {middle} AND ID < {middle + 2 * step}",
            f"INSERT INTO {name} SELECT ID + {rows}, {further} FROM {name} {lowest}",
            f"DELETE FROM {name} {lowest}",
        ):
            pipeline.execute(text)
            pipeline.writer.commit()
        after_step(at)
