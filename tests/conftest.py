"""What all tests share: where they find each other's support, one sandbox, one Spark session."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from airflow_provider_db2cdc.submit.command import FAST_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from support.command_line import Command
    from support.pipeline import Pipeline

    from airflow_provider_db2cdc.sandbox.server.service import Sandbox

# A run that decides over a change must come out the same twice. `make soak` looks at other cases each time.
settings.register_profile("same", derandomize=True)
settings.register_profile("soak", derandomize=False, deadline=None, database=None, print_blob=True)
settings.load_profile("same")

ROOT = Path(__file__).parents[1]
# Code that is compiled well pays only in a JVM that does more than the suite does. Without it the Spark tests and three
# end-to-end tests took 330 s of CPU, and with it 371 s. The cache of compiled code is as large as a job's: one of 48 MB
# was full after minutes. To make room then took 356 of 1,549 s of CPU.
JAVA_OPTIONS = ("-Duser.timezone=UTC", "-XX:+UseSerialGC", "-Xmn900m", FAST_START)
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a folder whose tests are left out: to collect those of Airflow imports it, for seconds."""
    mark = FOLDER_MARKS.get(collection_path.name) if collection_path.parent == ROOT / "tests" else None
    return True if mark and f"not {mark}" in config.option.markexpr.split(" and ") else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the run cost: on a machine that does other work too, the time by the clock says little."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(one.ru_utime + one.ru_stime for one in used)
    terminalreporter.write_line(f"{seconds:.0f} s of CPU (user and system, with what the tests started and waited for)")


FOLDER_MARKS = {"airflow": "airflow", "cluster": "cluster", "production": "cluster", "demo": "slow"}
FIXTURE_MARKS = {
    "spark": "spark",
    "sandbox": "sandbox",
    "sandbox_jars": "sandbox",
    "silent_sandbox": "sandbox",
    "captured_sandbox": "sandbox",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by what it starts, so that `make check` can leave out what takes long."""
    for item in items:
        marks = {FIXTURE_MARKS[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURE_MARKS}
        marks |= {
            mark for folder, mark in FOLDER_MARKS.items() if folder in item.path.relative_to(ROOT / "tests").parts
        }
        for mark in marks:
            item.add_marker(mark)


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the workers of a run find each other's JVM."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def spark(spark_folder: Path) -> Iterator[SparkSession]:
    """A local session with Delta and IBM's driver, on one JVM for all workers."""
    from support.shared_spark import shared_spark

    jars = sorted((ROOT / "build" / "jars" / "spark").glob("*.jar"))
    assert jars, "no jars in build/jars/spark: run `make setup`"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.master": "local[2]",
        "spark.app.name": "tests",
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS),
        # At the end of the suite 2.1 GB of plans were alive; at 3 GB it collected garbage for a sixth of its time.
        "spark.driver.memory": "5g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(spark_folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        # VACUUM lists a table's files by so many tasks, by itself 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # As submitted jobs have it; the logs of some eight hundred tables took 2 GB at the end of the suite.
        "spark.databricks.delta.delta.log.cacheSize": "100",
        # Every tenth tick would take twice as long.
        "spark.databricks.delta.properties.defaults.checkpointInterval": "100",
        # Few rows a query: to compile code for them takes longer than to interpret. Submitted jobs compile for many.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Hadoop starts some two hundred chmods and readlinks a tick where it has no native library.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        "spark.ui.enabled": "false",
        # No test looks at queries that have ended. Spark would keep a thousand of them.
        **{f"spark.{name}": "20" for name in ("ui.retainedJobs", "ui.retainedStages", "sql.ui.retainedExecutions")},
        "spark.ui.retainedTasks": "200",
        # No test reads the plan in a query's description, or the file list in a commit's checksum.
        "spark.sql.ui.explainMode": "simple",
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
        "spark.databricks.delta.fileSizeHistogramMetrics.enabled": "false",
        "spark.databricks.delta.checksumDVMetrics.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    with shared_spark(spark_folder, conf) as session:
        # What is imported by now is not looked through each time that frames are collected.
        gc.freeze()
        yield session


@pytest.fixture(scope="session")
def captured_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A running sandbox whose agent captures a few times a second, and whose clock is ahead of UTC."""
    from airflow_provider_db2cdc.sandbox.server.service import Sandbox

    jars = str(ROOT / "build" / "jars" / "sandbox")
    folder = tmp_path_factory.mktemp("captured")
    with Sandbox.start(folder, commit_interval_s=0.4, time_zone="GMT+05:30", jars=jars) as running:
        yield running


@pytest.fixture
def new_pipeline(captured_sandbox: Sandbox, spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    """Make pipelines, each with a schema and a target of its own."""
    from support.ended import end_capture
    from support.pipeline import Pipeline

    made: list[Pipeline] = []

    def make(**properties: Any) -> Pipeline:
        folder = tmp_path / f"p{len(made)}"
        folder.mkdir()
        made.append(Pipeline(captured_sandbox, spark, folder, properties=properties))
        return made[-1]

    yield make
    for pipeline in made:
        end_capture(pipeline.writer, pipeline.schema)
        pipeline.writer.close()
    # The JVM keeps what frames of Python's point to until these are collected, in cycles also.
    gc.collect()


@pytest.fixture
def db2cdc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """The command line, in this process."""
    from support.command_line import command_line

    with command_line(monkeypatch, capsys) as run:
        yield run
