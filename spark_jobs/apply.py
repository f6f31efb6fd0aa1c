"""Entry script of one tick for spark-submit: read the JobSpec, run it, print the JobResult on one marked line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from airflow_provider_db2cdc.cdc.job import RESULT_MARK, JobSpec
from airflow_provider_db2cdc.spark.job import run
from airflow_provider_db2cdc.spark.parent import end_with_parent
from airflow_provider_db2cdc.tick.log import as_own, describe


def read_spec(name: str) -> JobSpec:
    """Return the spec in a file. `name` is its path, or its name among the files of spark-submit's --files."""
    path = Path(name)
    if not path.is_file():
        from pyspark import SparkContext, SparkFiles

        SparkContext.getOrCreate()
        path = Path(SparkFiles.get(name))
    return JobSpec.from_json(path.read_text(encoding="utf-8"))


def main() -> int:
    """Run the spec and print the result. The exit code is 1 if a table failed: the result is printed even then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="path of the JobSpec, or its name among Spark's files")
    spec = parser.parse_args().spec
    end_with_parent(Path(spec).parent)
    try:
        result = run(read_spec(spec))
    except Exception as error:
        # The name of the error class shows whether a retry can help.
        sys.stderr.write(f"{type(as_own(error)).__name__}: {' '.join(describe(error).split())}\n")
        return 1
    sys.stdout.write(f"{RESULT_MARK}{result.to_json()}\n")
    sys.stdout.flush()
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
