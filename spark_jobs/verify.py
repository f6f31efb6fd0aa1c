"""spark-submit entry of a verification: it compares the tables with their source, and prints the result on one line."""

from __future__ import annotations

import sys

from airflow_provider_db2cdc.cdc.verify.document import VerifySpec
from airflow_provider_db2cdc.spark.entry import run_entry
from airflow_provider_db2cdc.spark.verify.job import run

if __name__ == "__main__":
    sys.exit(run_entry(__doc__, VerifySpec.from_json, run))
