"""What only a driver of its own shows: its end by the timer of its JVM."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support.submitted import JARS

from airflow_provider_db2cdc.cdc.document import LEASE_LOST
from airflow_provider_db2cdc.submit.command import Submission, spark_conf, submit_argv
from airflow_provider_db2cdc.submit.home import spark_binary, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240
TIMER = """
import os, signal, time
from pyspark.sql import SparkSession
from airflow_provider_db2cdc.spark.lease.driver import SparkDriver

driver = SparkDriver(SparkSession.builder.getOrCreate())
driver.end_after(1)
driver.end_after(None)
time.sleep(2)
driver.end_after(1)
driver.end_after(600)
time.sleep(2)
driver.end_after(1)
print("PID", os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def submitted(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program by spark-submit, with Delta."""
    path = folder / "program.py"
    path.write_text(program)
    conf = spark_conf([*(JARS / "spark").glob("*.jar")])
    return subprocess.run(
        submit_argv(spark_binary(), Submission(str(path), (), (), conf, "local[1]")),
        env=spark_environment(environ={**os.environ, "PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_the_jvm_ends_by_its_own_timer_while_its_python_is_stopped(tmp_path: Path) -> None:
    done = submitted(TIMER, tmp_path)
    [pid] = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("PID")]
    os.kill(pid, signal.SIGKILL)
    assert done.returncode == LEASE_LOST, done.stderr
