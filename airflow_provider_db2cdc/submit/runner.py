"""Running a tick's job as a child process; Airflow has an operator for that, the command line has this."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_provider_db2cdc.cdc.job import PASSWORD_ENV, RESULT_MARK, USER_ENV, JobResult, JobSpec
from airflow_provider_db2cdc.config import SparkConfig
from airflow_provider_db2cdc.errors import TickFailedError
from airflow_provider_db2cdc.jars import spark_classpath
from airflow_provider_db2cdc.submit import LOG4J, application_path
from airflow_provider_db2cdc.submit.bundle import build_bundle
from airflow_provider_db2cdc.submit.child import OnLine, run_child
from airflow_provider_db2cdc.submit.command import (
    Submission,
    application_args,
    classpath_of,
    is_short,
    spark_conf,
    submit_argv,
)
from airflow_provider_db2cdc.submit.home import spark_binary, spark_environment


def run_job(spec: JobSpec, spark: SparkConfig, user: str, password: str, on_line: OnLine) -> JobResult:
    """Run `spec` in Spark and return what it reports; every other line of its output goes to `on_line`.

    Running it again is safe: the job does what is missing. An interrupt ends Spark before it goes on.

    :raises TickFailedError: Spark ended without a result.
    """
    jars, packages = spark_classpath(spark.jars, [*spark.packages, *classpath_of(spark.conf)])
    env = {**spark_environment(spark.binary, spark.master), USER_ENV: user, PASSWORD_ENV: password}
    with tempfile.TemporaryDirectory(prefix="db2cdc-") as folder:
        path = Path(folder) / "spec.json"
        path.write_text(spec.to_json(), encoding="utf-8")
        submission = Submission(
            application=str(application_path()),
            args=tuple(application_args(path)),
            py_files=(str(build_bundle()),),
            conf=spark_conf(jars, [*spark.packages, *packages], spark.conf, LOG4J, short=is_short(spec)),
            master=spark.master,
            name=f"db2cdc {spec.pipeline}",
        )
        return run_submission(submit_argv(spark_binary(spark.binary), submission), env, on_line)


def run_submission(argv: Sequence[str], env: Mapping[str, str], on_line: OnLine) -> JobResult:
    """Run a spark-submit command and return the result that its output carries.

    A job with failed tables exits with an error too: its result says so, and is returned all the same.

    :raises TickFailedError: it ended without a result.
    """
    results: list[str] = []

    def sort(line: str) -> None:
        if line.startswith(RESULT_MARK):
            results.append(line.removeprefix(RESULT_MARK))
        else:
            on_line(line)

    code = run_child(argv, env, sort)
    if not results:
        raise TickFailedError(
            f"spark-submit ended with exit code {code} and without a result",
            "Its output says why; running the tick again does what is missing.",
        )
    return JobResult.from_json(results[-1])
