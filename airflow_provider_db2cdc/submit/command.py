"""The settings and arguments of spark-submit. This module starts nothing and reads nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider_db2cdc.cdc.layout import URL_LOGIN
from airflow_provider_db2cdc.cdc.spark_master import connect_error
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
"""JVM options to compile quickly, not well. The first one would shrink the code cache to 48 MB.

Spark fills such a cache in minutes.
"""

SECRETS = re.compile(
    r"^spark\.hadoop\.fs\.(s3a|azure|gs|adl)\..*"
    r"(access\.key|secret\.key|session\.token|proxy\.password|encryption\.key|account\.key|client\.secret|"
    r"refresh\.token|user\.password|sas\.fixed\.token|\.sas\.|private\.key)"
    r"|(?i:(password|secret|token|(secret|access)[._]?key)$)"
)
"""Names of settings that hold secrets: those of an object store by Hadoop, and others by the end of the name."""

SECRET_PARAMETER = re.compile(r"[?&;](password|secret|token)=", re.IGNORECASE)
"""Matches a secret among the parameters of a URL."""

REFERENCE = re.compile(r"^spark\.kubernetes\.(driver|executor)\.secretKeyRef\.")
"""Names of settings that say where Kubernetes keeps a secret."""

CONNECT = "spark.remote"
API_MODE = "spark.api.mode"

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
"""Settings that a user may override.

- `retained*`: the driver's heap holds what is retained, even if no UI shows it.
- `codegen.cache`: a job of one table runs about 700 pieces of generated code repeatedly. By default Spark keeps 100, so
  each would be compiled again before its next use.
- `log.cacheSize`: for each opened Delta table, Delta keeps a log of 1 to 2 MB for an hour, up to 10,000 of them. Each
  source table has three Delta tables. A job of hundreds of tables has no room for that.
- `allFilesInCrc`: Delta writes a list of files into the checksum of each commit, and must look it up for that. Nothing
  here reads it. Delta (4.4.0) itself only copies it into the next checksum, and compares the files with it.
"""


@dataclass(frozen=True)
class Submission:
    """One call of spark-submit. Secrets are only in its environment, never here."""

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
    """Return the settings of an apply job: those of `extra`, and what else the job needs.

    Driver and executors run in UTC, because in another zone a JVM shifts Db2's timestamps, which have no zone. `log4j`
    is a file that the driver can read. A file that `extra` names replaces it. With `short` the driver's JVM compiles
    quickly, not well. That halves the CPU time of a job that consists mostly of the start. JVM options
    and SQL extensions of `extra` are kept.

    :raises ConfigurationError: when `extra` sets another time zone, deploy mode cluster, Spark Connect, or a secret.
    """
    given = dict(extra or {})
    for name in (CONNECT, API_MODE):
        if given.get(name, "classic").lower() != "classic":
            raise connect_error(f"{name} asks for Spark Connect, which")
    refuse_secrets(given)
    if given.get(DEPLOY_MODE) == "cluster":
        raise ConfigurationError(f"{DEPLOY_MODE} is cluster, where the job's result cannot pass", "Use client mode.")
    if given.get(SESSION_ZONE, "UTC") != "UTC":
        raise ConfigurationError(f"{SESSION_ZONE} is {given[SESSION_ZONE]!r}", "Remove it: timestamps need UTC.")
    conf = {**DEFAULTS, **given, SESSION_ZONE: "UTC"}
    conf[EXTENSIONS] = _joined(given.get(EXTENSIONS, ""), DELTA_EXTENSION)
    driver, executor = JVM_OPTIONS
    given_driver = given.get(driver, "")
    logging = f"{LOG4J_OPTION}{log4j}" if log4j and LOG4J_OPTION not in given_driver else ""
    # If two options contradict each other, the JVM takes the later one.
    conf[driver] = _spaced(FAST_START if short else "", given_driver, UTC, logging)
    conf[executor] = _spaced(given.get(executor, ""), UTC)
    if jars:
        conf[JARS] = _joined(given.get(JARS, ""), *map(str, jars))
    if packages:
        conf[PACKAGES] = _joined(given.get(PACKAGES, ""), *packages)
    return conf


def refuse_secrets(conf: Mapping[str, object]) -> None:
    """Refuse a secret among Spark's settings: they are on the command line, which every user can read.

    :raises ConfigurationError: when a setting holds a secret.
    """
    if names := sorted(name for name, value in conf.items() if _is_secret(name, str(value))):
        raise ConfigurationError(
            f"{names[0]} is a secret, and Spark's settings are on its command line",
            "Use store_conn_id, the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), the machine's role, or a "
            "file: spark-defaults.conf, or spark.hadoop.hadoop.security.credential.provider.path=jceks://file/<path>.",
        )


def _is_secret(name: str, value: str) -> bool:
    is_named = SECRETS.search(name) and not REFERENCE.match(name)
    return bool(is_named or URL_LOGIN.search(value) or SECRET_PARAMETER.search(value))


def classpath_of(conf: Mapping[str, str]) -> list[str]:
    """Return the jars and packages that the settings name."""
    return [*items_of(conf.get(JARS)), *items_of(conf.get(PACKAGES)), *conf.get(CLASS_PATH, "").split(os.pathsep)]


def items_of(text: str | None) -> list[str]:
    """Return the items of one of Spark's lists, which are separated by commas."""
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def application_args(spec: str | Path, repeat: bool = False) -> list[str]:
    """Return the entry script's arguments. `spec` is a path, or a name that came with --files.

    With `repeat` the job waits for another spec after each result.
    """
    return ["--spec", str(spec), *(["--repeat"] if repeat else [])]


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
