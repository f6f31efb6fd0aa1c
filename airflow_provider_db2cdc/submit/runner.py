"""The run of a job as a child process, for the command line. Airflow has operators for it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from airflow_provider_db2cdc.cdc.document import ERROR_LOG_ENV, PASSWORD_ENV, USER_ENV, JobDocument
from airflow_provider_db2cdc.config.pipeline import SparkConfig
from airflow_provider_db2cdc.errors import SourceError, TickFailedError
from airflow_provider_db2cdc.submit import LOG4J, application_path
from airflow_provider_db2cdc.submit.bundle import build_bundle
from airflow_provider_db2cdc.submit.child import OnLine, run_child
from airflow_provider_db2cdc.submit.command import (
    Submission,
    application_args,
    classpath_of,
    spark_conf,
    submit_argv,
)
from airflow_provider_db2cdc.submit.folder import job_folder, keep_output, new_error_log
from airflow_provider_db2cdc.submit.handover import Following, Handover, ResultReader
from airflow_provider_db2cdc.submit.home import jars_of_spark, spark_binary, spark_environment
from airflow_provider_db2cdc.submit.jars import spark_classpath
from airflow_provider_db2cdc.submit.output import cause_of

KEPT_LINES = 500
CONNECT_TIMEOUT_S = 120.0
"""Seconds for the start of a JVM, the files that Ivy must fetch, and a login."""

R = TypeVar("R")


class Login(NamedTuple):
    """The user and the password that a job logs in to the source with."""

    user: str = ""
    password: str = ""


def run_job(
    spec: JobDocument[R], spark: SparkConfig, login: Login, on_line: OnLine, following: Following[R] | None = None
) -> R:
    """Run `spec` in Spark and return its result. Every other line of its output goes to `on_line`.

    With `following` the same Spark application then runs the spec that it returns for each result. The last result is
    returned.

    A retry is safe, because a job only does what is missing. An interrupt ends Spark before this call returns. The
    death of this process ends Spark too. A job that failed with a result exits with an error. Its result is returned
    like any other.

    :raises TickFailedError: when Spark ended without a result. The text has the cause from its output.
    """
    name, log = f"db2cdc {spec.pipeline}", new_error_log(spec.pipeline)
    with job_folder(spec.to_json()) as path:
        argv = _argv(spark, name, spec.script, application_args(path, following is not None), spec.is_short)
        environment = {**_environment(spark, login), ERROR_LOG_ENV: str(log)}
        handover = None if following is None else Handover(path, spec, following)
        return spec.read_result(run_submission(argv, environment, on_line, log, handover))


def run_submission(
    argv: Sequence[str], env: Mapping[str, str], on_line: OnLine, log: Path, handover: Handover[Any] | None = None
) -> str:
    """Run a spark-submit command and return the last result from its output.

    :raises TickFailedError: when the command ended without a result. `log` then has the end of its output.
    """
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    results = ResultReader(handover)

    def read(line: str) -> None:
        if not results.take(line):
            kept.append(line)
            on_line(line)

    code = run_child(argv, env, read)
    if results.newest is None:
        cause = cause_of(kept, code) or "its output does not say why"
        where = f" The end of Spark's output is in {log}." if keep_output(log, kept) else ""
        raise TickFailedError(
            f"Spark ended with exit code {code} and without a result: {cause}",
            f"Repair that, then run the command again: it continues from where this one ended.{where}",
        )
    return results.newest


def check_connection(jdbc_url: str, spark: SparkConfig, login: Login) -> None:
    """Connect to the source once as the job does: in Spark's JVM, with its jars and options, by IBM's JDBC driver.

    :raises SourceError: when there is no connection. The text has the cause.
    """
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    argv = _argv(spark, "db2cdc connect", "connect", ["--url", jdbc_url], short=True)
    results = ResultReader()

    def read(line: str) -> None:
        if not results.take(line):
            kept.append(line)

    code = run_child(argv, _environment(spark, login), read, CONNECT_TIMEOUT_S)
    if results.newest is None:
        cause = cause_of(kept) or f"exit code {code}, after at most {CONNECT_TIMEOUT_S:.0f} s"
        raise SourceError(f"Spark cannot try its connection to the source: {cause}", "Correct spark.* or the jars.")
    answer = json.loads(results.newest)
    if answer["problem"]:
        raise SourceError(f"Spark's connection (JDBC): {answer['problem']}", answer["remedy"])


def check_jars(spark: SparkConfig) -> None:
    """Check the jars that a job would get.

    :raises ConfigurationError: when one of them is missing or damaged.
    """
    _classpath(spark)


def _classpath(spark: SparkConfig) -> tuple[list[Path], list[str]]:
    named = [*spark.packages, *classpath_of(spark.conf), *jars_of_spark(spark_binary(spark.binary))]
    return spark_classpath(spark.jars, named)


def _argv(spark: SparkConfig, name: str, job: str, args: Sequence[str], short: bool) -> list[str]:
    jars, packages = _classpath(spark)
    submission = Submission(
        application=str(application_path(job)),
        args=tuple(args),
        py_files=(str(build_bundle()),),
        conf=spark_conf(jars, [*spark.packages, *packages], spark.conf, LOG4J, short),
        master=spark.master,
        name=name,
    )
    return submit_argv(spark_binary(spark.binary), submission)


def _environment(spark: SparkConfig, login: Login) -> dict[str, str]:
    return {**spark_environment(spark.binary, spark.master), USER_ENV: login.user, PASSWORD_ENV: login.password}
