"""`python -m tests.bench.writing {...}`: change single rows of the big table, so many a second, until input ends."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.pipeline import Pipeline

from airflow_provider_db2cdc.source.driver import connect

ROOT = Path(__file__).parents[2]
CHANGES_A_COMMIT = 10


@contextmanager
def changing(pipeline: Pipeline, rows: int, changes_per_s: int) -> Iterator[list[int]]:
    """Change rows while the block runs. Yields a list that holds the number of changes after the block."""
    order = {"dsn": pipeline.sandbox.dsn(), "schema": pipeline.schema, "rows": rows, "rate": changes_per_s}
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, "-m", "tests.bench.writing", json.dumps(order)]
    made: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as child:
        try:
            yield made
        finally:
            told, _ = child.communicate(timeout=60)
            made.append(int(told or 0))


def main(order: dict[str, Any]) -> None:
    """Write until standard input is closed, then say how much."""
    connection = connect(order["dsn"])
    cursor, rng, started, made = connection.cursor(), random.Random(1), time.monotonic(), 0
    statement = f'UPDATE "{order["schema"]}"."BIG" SET C4 = C4 + 1 WHERE ID = ?'
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(CHANGES_A_COMMIT):
            cursor.execute(statement, (rng.randrange(order["rows"]),))
        connection.commit()
        made += CHANGES_A_COMMIT
        time.sleep(max(0.0, started + made / order["rate"] - time.monotonic()))
    cursor.close()
    connection.close()
    sys.stdout.write(str(made))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
