"""The frame of an entry script for spark-submit: read the spec, run it, print the result on one marked line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from airflow_provider_db2cdc.cdc.document import RESULT_MARK, SPEC_NAME, JobResultDocument
from airflow_provider_db2cdc.spark.parent import end_with_parent
from airflow_provider_db2cdc.tick.log import as_own, describe

S = TypeVar("S")

NEXT_SPEC_POLL_S = 0.1


def run_entry(description: str | None, read: Callable[[str], S], run: Callable[[S], JobResultDocument]) -> int:
    """Run the spec that `--spec` names and print its result. Return the exit code.

    It is 1 without a result, or with a result that failed. With `--repeat` the job then waits for its next spec. It
    ends if the code is 1, or the next spec is empty.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--spec", required=True, help="path of the spec, or its name among Spark's files")
    parser.add_argument("--repeat", action="store_true", help="after each result wait for another spec")
    given = parser.parse_args()
    end_with_parent(Path(given.spec).parent)
    try:
        for text in _specs(given.spec, given.repeat):
            result = run(read(text))
            sys.stdout.write(f"{RESULT_MARK}{result.to_json()}\n")
            sys.stdout.flush()
            if result.is_failed:
                return 1
    except Exception as error:
        # The name of the error class shows whether a retry can help.
        sys.stderr.write(f"{type(as_own(error)).__name__}: {' '.join(describe(error).split())}\n")
        return 1
    return 0


def _specs(first: str, repeat: bool) -> Iterator[str]:
    """Return the text of the first spec. With `repeat`, then wait for each further one, up to an empty text."""
    yield _spec_text(first)
    number = 2
    while repeat and (text := _awaited_text(Path(first).with_name(SPEC_NAME.format(number)))):
        yield text
        number += 1


def _awaited_text(path: Path) -> str:
    while not path.is_file():
        time.sleep(NEXT_SPEC_POLL_S)
    return path.read_text(encoding="utf-8")


def _spec_text(name: str) -> str:
    """Return the text of a spec. `name` is its path, or its name among the files of spark-submit's --files."""
    path = Path(name)
    if not path.is_file():
        from pyspark import SparkContext, SparkFiles

        SparkContext.getOrCreate()
        path = Path(SparkFiles.get(name))
    return path.read_text(encoding="utf-8")
