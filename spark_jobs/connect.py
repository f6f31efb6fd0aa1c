"""Entry script of `db2cdc doctor` for spark-submit: open a JDBC connection as a tick does, and print the outcome."""

from __future__ import annotations

import argparse
import json
import sys

from airflow_provider_db2cdc.cdc.document import RESULT_MARK
from airflow_provider_db2cdc.cdc.job import SourceSpec
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource, connect
from airflow_provider_db2cdc.tick.log import as_own


def main() -> int:
    """Connect without a Spark session, and print one marked line with the problem and its remedy, both may be empty."""
    # Use only the gateway to the JVM that spark-submit has started. A session would ask the cluster for executors.
    from pyspark.java_gateway import launch_gateway

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the JDBC URL, without user and password")
    source = JdbcSource(SourceSpec(parser.parse_args().url, "", "", ""))
    problem = Db2CdcError("")
    try:
        with connect(launch_gateway().jvm, source):
            pass
    except Exception as error:
        problem = as_own(error)
    answer = json.dumps({"problem": problem.problem, "remedy": problem.remedy})
    sys.stdout.write(f"{RESULT_MARK}{answer}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
