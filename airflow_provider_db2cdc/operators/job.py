"""The base of operators that run a job in one spark-submit and return its result."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowNotFoundException
from airflow.sdk import BaseHook, Connection, Context, XComArg

from airflow_provider_db2cdc.cdc.document import ERROR_LOG_ENV, PASSWORD_ENV, USER_ENV, JobDocument, JobResultDocument
from airflow_provider_db2cdc.cdc.spark_master import check_master
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook, missing_connection
from airflow_provider_db2cdc.hooks.spark_job import SparkJobHook
from airflow_provider_db2cdc.hooks.store import store_login
from airflow_provider_db2cdc.operators.failure import LASTING_NAMES, fail_at_once
from airflow_provider_db2cdc.submit import LOG4J, application_path
from airflow_provider_db2cdc.submit.bundle import build_bundle
from airflow_provider_db2cdc.submit.command import application_args, classpath_of, items_of, refuse_secrets, spark_conf
from airflow_provider_db2cdc.submit.folder import job_folder, new_error_log
from airflow_provider_db2cdc.submit.handover import Following, Handover, ResultReader
from airflow_provider_db2cdc.submit.home import jars_of_spark, spark_binary, spark_environment
from airflow_provider_db2cdc.submit.jars import spark_classpath
from airflow_provider_db2cdc.submit.output import cause_of

R = TypeVar("R", bound=JobResultDocument)


class Db2CdcJobOperator(SparkSubmitOperator, Generic[R]):
    """Run a job in Spark and return its result as JSON. A subclass says which spec it runs.

    It takes every argument of `SparkSubmitOperator` (conf, jars, packages, driver_memory, env_vars, spark_binary ...).
    It adds what else the job needs: entry script, the package as a zip, Delta's settings, and jars. Without a
    binary of your own, the job runs with the installed pyspark's spark-submit and this Python. The Db2 user and
    password are only in the job's environment. The job runs in client mode, because its result is read from its output.

    The task's log shows how far the job is. While the job runs, its XCom `progress` does too.

    :param spec: The spec as JSON, from an earlier task. (templated)
    :param db2_conn_id: The connection whose user and password the job gets. (templated)
    :param spark_conn_id: The Spark connection. It must exist.
    :param store_conn_id: A connection of type `aws`, whose key, secret and session token the job gets in its
        environment, for a target on S3. (templated)
    :param jars_folder: A folder of jars on the worker, as `db2cdc jars` fills it. By default it is the default folder,
        or the Maven coordinates of the installed versions. Its jars are added to those that jars, packages and conf
        name. If these have Delta or a JDBC driver already, its own is not added. If jars or packages is an empty text,
        no jar is added, because the cluster has them.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "spec",
        "db2_conn_id",
        "store_conn_id",
        "jars_folder",
    )
    ui_color = "#fff1d6"
    lasting_names = LASTING_NAMES
    """The errors of the job that a retry cannot mend."""

    def __init__(
        self,
        *,
        spec: str | XComArg,
        db2_conn_id: str = Db2CdcHook.default_conn_name,
        spark_conn_id: str = "spark_default",
        store_conn_id: str | None = None,
        jars_folder: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(conn_id=spark_conn_id, **{"name": "db2cdc", **kwargs})
        for settings in (self.conf, kwargs.get("env_vars")):
            # The text of a template has no names yet.
            refuse_secrets(settings if isinstance(settings, Mapping) else {})
        self.spec = spec
        self.db2_conn_id = db2_conn_id
        self.spark_conn_id = spark_conn_id
        self.store_conn_id = store_conn_id
        self.jars_folder = jars_folder
        self._job_environment: dict[str, str] = {}
        self._on_snapshot: Callable[[str], None] | None = None
        self._results = ResultReader()

    @abstractmethod
    def read_spec(self) -> JobDocument[R]:
        """Return the spec of this run.

        :raises ConfigurationError: when there is none, or it is of another version.
        """

    def following(self, spec: JobDocument[R]) -> Following[R] | None:
        """Return what gives the same job its further specs, or None if it has only this one."""
        return None

    def execute(self, context: Context) -> str:  # type: ignore[override]
        """Run the job and return its result as JSON.

        :raises AirflowFailException: when a connection is missing, or the job ended with an error that a retry cannot
            mend.
        :raises AirflowException: when the job ended without a result. A retry continues from where it ended.
        """
        return self.run_spec(context).to_json()

    def run_spec(self, context: Context) -> R:
        """Run the job and return its result. See `execute` for the errors."""
        with fail_at_once():
            spec = self.read_spec()
            connection = self._spark_connection()
            login = {**self.login(), **(store_login(self.store_conn_id) if self.store_conn_id else {})}
            following = self.following(spec)
            self._fill_in(connection, spec)
        log = new_error_log(spec.pipeline)
        with job_folder(spec.to_json()) as path:
            self.application_args = application_args(path, following is not None)
            self._results = ResultReader(None if following is None else Handover(path, spec, following))
            self._job_environment = {**login, ERROR_LOG_ENV: str(log)}
            self._on_snapshot = partial(self._keep_progress, context)
            return spec.read_result(self._submit(context))

    def login(self) -> dict[str, str]:
        """Return the environment variables by which the job logs in to Db2."""
        address = Db2CdcHook(self.db2_conn_id).address()
        return {USER_ENV: address.user, PASSWORD_ENV: address.password}

    def _keep_progress(self, context: Context, line: str) -> None:
        """Store in the task's XCom how far a snapshot is. A failure to store it does not end the job."""
        try:
            context["ti"].xcom_push(key="progress", value=line)
        except Exception as error:
            self.log.info("not kept in the XCom: %s (%s)", line, error)

    def _spark_connection(self) -> Connection:
        """Return the Spark connection. Without one the base class would run on YARN."""
        try:
            connection = BaseHook.get_connection(self.spark_conn_id)
        except AirflowNotFoundException as error:
            raise missing_connection(self.spark_conn_id) from error
        for text in (f"{connection.conn_type}:", connection.host or ""):
            check_master(text, f"connection {self.spark_conn_id!r}")
        if (self._deploy_mode or connection.extra_dejson.get("deploy-mode")) == "cluster":
            raise ConfigurationError(
                f"connection {self.spark_conn_id!r} asks for deploy mode cluster, where the job's result and the "
                "password cannot pass",
                "Use client mode: the driver then runs on the Airflow worker, the work still on the cluster.",
            )
        return connection

    def _fill_in(self, connection: Connection, spec: JobDocument[Any]) -> None:
        self.application = self.application or str(application_path(spec.script))
        self.py_files = ",".join(filter(None, (self.py_files, str(build_bundle()))))
        conf = {str(name): str(value) for name, value in (self.conf or {}).items()}
        connection_binary = connection.extra_dejson.get("spark-binary")
        if not self._spark_binary and not connection_binary:
            home = {**os.environ, **(self.env_vars or {})}.get("SPARK_HOME")
            self._spark_binary = f"{home}/bin/spark-submit" if home else spark_binary()
        spark_jars = jars_of_spark(str(self._spark_binary or connection_binary))
        self.conf = spark_conf(*self._classpath(conf, spark_jars), conf, LOG4J, spec.is_short)
        # spark-submit would take these instead of the jars and packages in conf. A retry adds no jar to an empty text.
        self.jars = self.packages = ""

    def _classpath(self, conf: dict[str, str], spark_jars: list[str]) -> tuple[list[str], list[str]]:
        """Return the jars and packages to add to those of `conf`: the user's, and what is still missing."""
        jars, packages = items_of(self.jars), items_of(self.packages)
        if "" in (self.jars, self.packages):
            return jars, packages
        folder = Path(self.jars_folder) if self.jars_folder else None
        missing, coordinates = spark_classpath(folder, [*jars, *packages, *classpath_of(conf), *spark_jars])
        return [*jars, *map(str, missing)], [*packages, *coordinates]

    def _get_hook(self) -> SparkJobHook:
        """Return the hook that reads the job's output.

        The base class calls this after it has added its own settings to `conf` (OpenLineage's).
        """
        with fail_at_once():
            hook = SparkJobHook.adopt(self._hook_of_spark())
            given = {**os.environ, **(self.env_vars or {})}
            environment = spark_environment(hook.spark_binary or "", hook.master, given)
        hook.environment = {**environment, **self._job_environment}
        hook.on_snapshot = self._on_snapshot
        hook.results = self._results
        return hook

    def _hook_of_spark(self) -> SparkSubmitHook:
        try:
            return super()._get_hook()
        except (NameError, RuntimeError) as error:
            # Without the Kubernetes provider, the name `kube_client` is undefined in the base class, or None.
            if "kube" not in str(error):
                raise
            raise ConfigurationError(
                f"connection {self.spark_conn_id!r} names Kubernetes as Spark's master: its provider is missing",
                "Install apache-airflow-providers-cncf-kubernetes on the Airflow worker.",
            ) from error

    def _submit(self, context: Context) -> str:
        self._hook = None
        try:
            super().execute(context)
        except AirflowException:
            # The job's output says how it ended. Without a hook there was no job.
            if self._hook is None:
                raise
        hook = self._hook
        assert isinstance(hook, SparkJobHook)
        if hook.results.newest is not None:
            return hook.results.newest
        kind = AirflowFailException if hook.error_name in self.lasting_names else AirflowException
        cause, tail = cause_of(hook.tail, hook.exit_code) or "its output does not say why", "\n".join(hook.tail)
        raise kind(
            f"spark-submit ended with exit code {hook.exit_code} and without a result: {cause}\nIts last lines:\n{tail}"
        )
