"""The walk over a table's chunks comes to an end, whatever a driver makes of the keys; SQLite is the source."""

from __future__ import annotations

import re
import sqlite3

import pytest

from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.spark.jdbc import DriverConnection
from airflow_provider_db2cdc.sql.chunk import Cut

CUT = Cut(TableId("S", "T"), (Column("K", "TIME", 3, nullable=False),))
TIMES = ("08:00:00", "16:00:00", "24:00:00")


class Clock(DriverConnection):
    """A source with a table of times, some of which come back as others: pairs of one and its other."""

    def __init__(self, *turned: tuple[str, str]) -> None:
        self._turned = dict(turned)
        self._database = sqlite3.connect(":memory:")
        self._database.create_function("TIME", 1, lambda text: text, deterministic=True)
        self._database.execute("ATTACH ':memory:' AS S")
        self._database.execute("CREATE TABLE S.T (K)")
        self._database.executemany("INSERT INTO S.T VALUES (?)", [(time,) for time in TIMES])

    def text_rows(self, select: str) -> list[list[str | None]]:
        select = re.sub(r"OFFSET (\d+) ROWS FETCH FIRST 1 ROW ONLY$", r"LIMIT 1 OFFSET \1", select)
        return [[self._turned.get(text, text)] for (text,) in self._database.execute(select)]


def test_each_key_ends_a_chunk_of_one_row() -> None:
    assert Clock().chunk_bounds(CUT, 1) == [(f"TIME('{time}')",) for time in TIMES]


@pytest.mark.parametrize(
    "turned",
    [("24:00:00", "00:00:00"), ("24:00:00", "16:00:00"), ("16:00:00", "08:00:00")],
    ids=["before all", "the last one's end", "the first one's end"],
)
def test_walk_that_comes_to_a_key_again_is_an_error(turned: tuple[str, str]) -> None:
    with pytest.raises(SourceError, match=r"S\.T: a chunk ends at a key that ended one before it"):
        Clock(turned).chunk_bounds(CUT, 1)
