"""One JVM with Spark for all workers of a test run. Compiled code and Delta's first steps then serve each worker."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""By these PySpark finds a JVM that runs already."""
HADOOP = "spark.hadoop."


@contextmanager
def shared_spark(folder: Path, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a separate session on the JVM of the first worker, which stays until the other workers are done.

    The JVM ends with that worker, also if it crashes. After a crash the next worker to come is a first one again.
    """
    address = folder / "spark.json"
    with (folder / "spark.door").open("w") as door, (folder / "spark.users").open("w") as users:
        with _locked(door):
            is_first = _is_free(users)
            session = _started(conf, address) if is_first else _joined(conf, address)
            fcntl.flock(users, fcntl.LOCK_SH)
        session.sparkContext.setLogLevel("ERROR")
        yield session
        if is_first:
            with _locked(door):
                fcntl.flock(users, fcntl.LOCK_EX)
                _stop(session)


def _stop(session: SparkSession) -> None:
    """Stop the session and wait for its JVM. Only then does the CPU time of this process's children include it."""
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)


@contextmanager
def _locked(file: IO[str]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
    fcntl.flock(file, fcntl.LOCK_UN)


def _is_free(users: IO[str]) -> bool:
    """Return whether no worker has the file locked."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _started(conf: Mapping[str, str], address: Path) -> SparkSession:
    session = SparkSession.builder.config(map=dict(conf)).getOrCreate()
    _drop_defaults(session, conf)
    gateway: Any = session.sparkContext._gateway
    at = gateway.gateway_parameters
    address.write_text(json.dumps({PORT: str(at.port), SECRET: at.auth_token}))
    return session


def _drop_defaults(session: SparkSession, conf: Mapping[str, str]) -> None:
    """Leave only what `conf` sets in Hadoop's settings. Each query sends all of them, with the defaults a thousand."""
    context: Any = session.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    hadoop.clear()
    for name, value in conf.items():
        if name.startswith(HADOOP):
            hadoop.set(name.removeprefix(HADOOP), value)


def _joined(conf: Mapping[str, str], address: Path) -> SparkSession:
    found = json.loads(address.read_text())
    os.environ.update(found)
    try:
        launch: Callable[[], Any] = launch_gateway
        gateway = launch()
    finally:
        # Otherwise submitted jobs would look for their JVM there.
        for name in found:
            del os.environ[name]
    java = gateway.jvm.org.apache.spark
    running = java.api.java.JavaSparkContext(java.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=running, conf=SparkConf(loadDefaults=False).setAll([*conf.items()]))
    return SparkSession(context, java.sql.classic.SparkSession.builder().getOrCreate().newSession())


def forget_delta_logs(spark: SparkSession) -> None:
    """Have Delta read its logs again, as the next job's JVM does."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
