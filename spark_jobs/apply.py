"""Entry script of one tick for spark-submit: read the JobSpec, run it, print the JobResult on one marked line.

The exit code is 1 if a table failed. The result is printed even then.
"""

from __future__ import annotations

import sys

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.spark.entry import run_entry
from airflow_provider_db2cdc.spark.job import run

if __name__ == "__main__":
    sys.exit(run_entry(__doc__, JobSpec.from_json, run))
