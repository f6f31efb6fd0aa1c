"""The suite's own Spark: workers share a JVM, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

KEY = "spark.databricks.delta.write.txnAppId"
JOINS = f"""
import os, sys
from pathlib import Path
from support.shared_spark import shared_spark

with shared_spark(Path(sys.argv[1]), {{"spark.master": "local[2]", "spark.app.name": "joins"}}) as session:
    session.conf.set("{KEY}", "theirs")
    found = [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")]
    print(session._jvm.java.lang.ProcessHandle.current().pid(), session.range(3).count(), *found)
"""


def test_a_worker_has_its_own_session_and_does_not_stop_the_jvm(spark: SparkSession, spark_folder: Path) -> None:
    jvm = spark._jvm
    assert jvm is not None
    # Of all sessions it is this one that a worker without its own would get.
    jvm.org.apache.spark.sql.classic.SparkSession.setDefaultSession(spark._jsparkSession)
    environment = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", JOINS, str(spark_folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(jvm.java.lang.ProcessHandle.current().pid()), "3"]
    assert spark.conf.get(KEY, None) is None
    assert spark.range(4).count() == 4
