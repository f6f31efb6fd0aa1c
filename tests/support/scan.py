"""A scan of a table while others write. It reads one place after the other, each at a different moment."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, cast

from airflow_provider_db2cdc.cdc.lsn import Lsn
from support.history import History
from support.operation import Key, Row


def torn_scan(
    history: History, table: str, moments: Sequence[Lsn], by_place: bool, rng: random.Random
) -> list[tuple[Key, Row]]:
    """Return the rows that a scan meets, some of them twice, and their keys.

    An index has a place for each key, and the table has one for each row. So a scan without an index may miss a row.
    That row was deleted at a place not yet read, and inserted again at a place already read.
    """
    key_of = history.shape(table).key_of
    places: dict[Hashable, list[Row | None]] = defaultdict(lambda: [None] * len(moments))
    for at, moment in enumerate(moments):
        for identity, row in history.rows(table, moment).items():
            places[identity if by_place else key_of(row)][at] = row
    in_order = sorted(cast("dict[Any, list[Row | None]]", places).items())
    looks = [rows for _, rows in in_order for _ in range(rng.choice((1, 1, 2)))]
    return [(key_of(row), row) for look in looks for row in [rng.choice(look)] if row is not None]
