"""The frame of an entry script for spark-submit: read the spec, run it, print the result on one marked line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from airflow_provider_db2cdc.cdc.document import RESULT_MARK, JobResultDocument
from airflow_provider_db2cdc.spark.parent import end_with_parent
from airflow_provider_db2cdc.tick.log import as_own, describe

S = TypeVar("S")


def run_entry(description: str | None, read: Callable[[str], S], run: Callable[[S], JobResultDocument]) -> int:
    """Run the spec that `--spec` names and print its result. Return the exit code.

    It is 1 without a result, or with a result that failed.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--spec", required=True, help="path of the spec, or its name among Spark's files")
    name = parser.parse_args().spec
    end_with_parent(Path(name).parent)
    try:
        result = run(read(_spec_text(name)))
    except Exception as error:
        # The name of the error class shows whether a retry can help.
        sys.stderr.write(f"{type(as_own(error)).__name__}: {' '.join(describe(error).split())}\n")
        return 1
    sys.stdout.write(f"{RESULT_MARK}{result.to_json()}\n")
    sys.stdout.flush()
    return 1 if result.is_failed else 0


def _spec_text(name: str) -> str:
    """Return the text of a spec. `name` is its path, or its name among the files of spark-submit's --files."""
    path = Path(name)
    if not path.is_file():
        from pyspark import SparkContext, SparkFiles

        SparkContext.getOrCreate()
        path = Path(SparkFiles.get(name))
    return path.read_text(encoding="utf-8")
