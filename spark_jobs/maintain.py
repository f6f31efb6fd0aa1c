"""Entry script of a maintenance run for spark-submit: read the MaintenanceSpec, run it, print the result.

The exit code is 1 if a table failed. The result is printed even then.
"""

from __future__ import annotations

import sys

from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceSpec
from airflow_provider_db2cdc.spark.entry import run_entry
from airflow_provider_db2cdc.spark.maintenance.run import run

if __name__ == "__main__":
    sys.exit(run_entry(__doc__, MaintenanceSpec.from_json, run))
