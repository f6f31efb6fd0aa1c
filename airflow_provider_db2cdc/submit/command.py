"""What spark-submit is told: settings and arguments. Pure; it starts nothing and reads nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.errors import ConfigurationError

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
SESSION_ZONE = "spark.sql.session.timeZone"
EXTENSIONS = "spark.sql.extensions"
DEPLOY_MODE = "spark.submit.deployMode"
JARS, PACKAGES = "spark.jars", "spark.jars.packages"
CLASS_PATH = "spark.driver.extraClassPath"
UTC = "-Duser.timezone=UTC"
JVM_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")

LOG4J_OPTION = "-Dlog4j2.configurationFile="
FAST_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Compile quickly rather than well; that alone would shrink the code cache to 48 MB, which Spark fills in minutes."""

SHORT_ROWS = 200_000

DEFAULTS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.databricks.delta.delta.log.cacheSize": "100",
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
}
"""Settings that a user may override. What is retained is kept on the driver's heap also where no UI shows it.

A job of one table runs some 700 pieces of generated code, again and again: where Spark keeps its usual 100, each is
gone before it is needed again, and compiled anew. Of each Delta table that was opened Delta keeps its log, some 1 to 2
MB, for an hour and up to 10,000 of them: three of each source table, which a job of hundreds has no room for. The list
of files that Delta writes into each commit's checksum is looked up for it and read by nobody: Delta (4.4.0) itself only
carries it on to the next one, and holds the files against it.
"""


@dataclass(frozen=True)
class Submission:
    """One call of spark-submit; secrets travel in its environment, never here."""

    application: str
    args: tuple[str, ...]
    py_files: tuple[str, ...]
    conf: Mapping[str, str] = field(default_factory=dict)
    master: str = ""
    name: str = "db2cdc"


def spark_conf(
    jars: Sequence[str | Path] = (),
    packages: Sequence[str] = (),
    extra: Mapping[str, str] | None = None,
    log4j: str | Path | None = None,
    short: bool = False,
) -> dict[str, str]:
    """Return the settings of an apply job: `extra`'s own, and beneath them what the job needs.

    Driver and executors run in UTC, because a JVM elsewhere shifts Db2's zoneless timestamps. `log4j` is a file that
    the driver can read; it gives way to one that `extra` names. `short` lets the driver's JVM compile quickly rather
    than well, which halves the CPU time of a tick that is mostly start (see is_short). JVM options and SQL extensions
    of `extra` are kept.

    :raises ConfigurationError: `extra` asks for another time zone, or for deploy mode cluster.
    """
    given = dict(extra or {})
    if given.get(DEPLOY_MODE) == "cluster":
        raise ConfigurationError(f"{DEPLOY_MODE} is cluster, where the job's result cannot pass", "Use client mode.")
    if given.get(SESSION_ZONE, "UTC") != "UTC":
        raise ConfigurationError(f"{SESSION_ZONE} is {given[SESSION_ZONE]!r}", "Leave it out: timestamps need UTC.")
    conf = {**DEFAULTS, **given, SESSION_ZONE: "UTC"}
    conf[EXTENSIONS] = _joined(given.get(EXTENSIONS, ""), DELTA_EXTENSION)
    driver, executor = JVM_OPTIONS
    given_driver = given.get(driver, "")
    logging = f"{LOG4J_OPTION}{log4j}" if log4j and LOG4J_OPTION not in given_driver else ""
    # Of two contradicting options the JVM takes the later.
    conf[driver] = _spaced(FAST_START if short else "", given_driver, UTC, logging)
    conf[executor] = _spaced(given.get(executor, ""), UTC)
    if jars:
        conf[JARS] = _joined(given.get(JARS, ""), *map(str, jars))
    if packages:
        conf[PACKAGES] = _joined(given.get(PACKAGES, ""), *packages)
    return conf


def classpath_of(conf: Mapping[str, str]) -> list[str]:
    """Return the jars and packages that settings name."""
    return [*items_of(conf.get(JARS)), *items_of(conf.get(PACKAGES)), *conf.get(CLASS_PATH, "").split(os.pathsep)]


def items_of(text: str | None) -> list[str]:
    """Return what a list of Spark's names, which are separated by commas."""
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def is_short(spec: JobSpec) -> bool:
    """Return whether a job is over before a well-compiled JVM would pay: few changes, and no snapshot to take."""
    fresh = any(task.stored_lsn is None and task.initial_snapshot for task in spec.tables)
    return not fresh and sum(task.rows for task in spec.tables) <= SHORT_ROWS


def application_args(spec: str | Path) -> list[str]:
    """Return the entry script's arguments; `spec` is a path, or a name that came with --files."""
    return ["--spec", str(spec)]


def submit_argv(binary: str | Path, submission: Submission) -> list[str]:
    """Return the command line of `submission`."""
    argv = [str(binary), "--name", submission.name]
    if submission.master:
        argv += ["--master", submission.master]
    for name, value in sorted(submission.conf.items()):
        argv += ["--conf", f"{name}={value}"]
    if submission.py_files:
        argv += ["--py-files", ",".join(submission.py_files)]
    return [*argv, submission.application, *submission.args]


def _spaced(*options: str) -> str:
    return " ".join(filter(None, options))


def _joined(*lists: str) -> str:
    return ",".join(dict.fromkeys(item for text in lists for item in items_of(text)))
