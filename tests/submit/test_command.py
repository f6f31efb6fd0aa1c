from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.job import JobSpec, SourceSpec, TableAction, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.submit.command import Submission, application_args, spark_conf, submit_argv
from airflow_provider_db2cdc.submit.home import spark_environment

LSN = Lsn(bytes(16))
DRIVER, EXECUTOR = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"


def test_both_jvms_run_in_utc_with_any_other_options() -> None:
    conf = spark_conf(extra={DRIVER: "-Duser.timezone=America/New_York --add-opens a --add-opens b"})
    assert conf[DRIVER] == "-Duser.timezone=America/New_York --add-opens a --add-opens b -Duser.timezone=UTC"
    assert conf[EXECUTOR] == "-Duser.timezone=UTC"


def test_only_the_driver_gets_logging_options() -> None:
    conf = spark_conf(log4j="/x/log4j2.properties")
    assert "-Dlog4j2.configurationFile=/x/log4j2.properties" in conf[DRIVER]
    assert "log4j" not in conf[EXECUTOR]


def test_a_users_own_logging_stays() -> None:
    own = spark_conf(extra={DRIVER: "-Dlog4j2.configurationFile=/mine"}, log4j="/ours")[DRIVER]
    assert "/mine" in own
    assert "/ours" not in own


def test_a_short_job_starts_fast_unless_the_user_says_otherwise() -> None:
    options = spark_conf(extra={DRIVER: "-XX:TieredStopAtLevel=4"}, short=True)[DRIVER].split()
    assert options.index("-XX:TieredStopAtLevel=1") < options.index("-XX:TieredStopAtLevel=4")
    assert any(option.startswith("-XX:ReservedCodeCacheSize=") for option in options)
    assert "Tiered" not in spark_conf()[DRIVER]


@pytest.mark.parametrize(
    ("action", "rows", "source_rows", "short"),
    [
        ("pull", 10, None, True),
        ("resnapshot", 200_000, None, True),
        ("pull", 200_001, None, False),
        ("initial_snapshot", 0, None, False),
        ("initial_snapshot", 0, 1000, True),
        ("restart", 0, None, False),
        ("restart", 0, 0, True),
        ("start_without_snapshot", 0, None, True),
    ],
)
def test_a_job_is_short_with_few_changes_and_small_tables(
    action: TableAction, rows: int, source_rows: int | None, short: bool
) -> None:
    table = TableId("S", "T")
    identity = CaptureIdentity("ASNCDC.CDT", "", "", "")
    capture = CaptureRegistration(table, "ASNCDC", "CDT", "A", "", "DI", None, None, None, (), identity)
    task = TableTask(TableSchema(table, (), ()), capture, LSN, LSN, rows, action, source_rows=source_rows)
    source = SourceSpec("jdbc:db2://h:1/D", "D", "p", "ASNCDC")
    assert JobSpec("p", "r", "0a", 0, "/lake", source, CapturePosition(LSN, "", "", 0.0), (task,)).is_short is short


def test_delta_is_set_up_with_other_extensions() -> None:
    conf = spark_conf(extra={"spark.sql.extensions": "a.B"})
    assert conf["spark.sql.extensions"] == "a.B,io.delta.sql.DeltaSparkSessionExtension"
    assert conf["spark.sql.catalog.spark_catalog"] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def test_delta_is_not_named_twice() -> None:
    once = spark_conf()
    assert spark_conf(extra=once) | {DRIVER: "", EXECUTOR: ""} == once | {DRIVER: "", EXECUTOR: ""}


def test_a_user_overrides_defaults() -> None:
    assert spark_conf(extra={"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"


def test_deploy_mode_cluster_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.submit\.deployMode is cluster"):
        spark_conf(extra={"spark.submit.deployMode": "cluster"})
    assert spark_conf(extra={"spark.submit.deployMode": "client"})["spark.submit.deployMode"] == "client"


def test_another_session_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Europe/Berlin"):
        spark_conf(extra={"spark.sql.session.timeZone": "Europe/Berlin"})


def test_jars_or_packages_join_those_of_the_user() -> None:
    conf = spark_conf(jars=[Path("/j/a.jar")], extra={"spark.jars": "/u/b.jar"})
    assert conf["spark.jars"] == "/u/b.jar,/j/a.jar"
    assert "spark.jars.packages" not in conf
    assert spark_conf(packages=["g:a:1", "g:b:2"])["spark.jars.packages"] == "g:a:1,g:b:2"


def test_command_line_in_the_order_that_spark_submit_reads() -> None:
    submission = Submission(
        "/app.py", tuple(application_args("/s.json")), ("/b.zip",), {"b": "2", "a": "x y"}, "local[2]", "n"
    )
    assert submit_argv("/bin/spark-submit", submission) == [
        *("/bin/spark-submit", "--name", "n", "--master", "local[2]"),
        *("--conf", "a=x y", "--conf", "b=2", "--py-files", "/b.zip", "/app.py", "--spec", "/s.json"),
    ]


def test_without_master_spark_decides() -> None:
    assert "--master" not in submit_argv("s", Submission("/app.py", (), ()))


@pytest.mark.parametrize(
    "name",
    [
        "fs.s3a.secret.key",
        "fs.s3a.bucket.lake.access.key",
        "fs.s3a.session.token",
        "fs.s3a.encryption.key",
        "fs.azure.account.key.me.dfs.core.windows.net",
        "fs.azure.account.oauth2.client.secret",
        "fs.azure.sas.fixed.token",
        "fs.gs.auth.service.account.private.key",
    ],
)
def test_secret_of_a_store_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is a secret") as refused:
        spark_conf(extra={f"spark.hadoop.{name}": "hidden"})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3.awsSecretAccessKey",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.AWS_SESSION_TOKEN",
        "spark.yarn.appMasterEnv.AWS_SECRET_ACCESS_KEY",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
        "spark.sql.catalog.main.token",
        "spark.sql.catalog.main.auth.oauth.clientSecret",
        "spark.kubernetes.authenticate.submission.oauthToken",
    ],
)
def test_other_secrets_are_refused_by_the_end_of_their_names(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is a secret") as refused:
        spark_conf(extra={name: "hidden"})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY",
        "spark.kubernetes.authenticate.submission.oauthTokenFile",
        "spark.hadoop.dfs.block.access.token.enable",
        "spark.sql.catalog.main.uri",
    ],
)
def test_reference_to_a_secret_is_passed_on(name: str) -> None:
    assert spark_conf(extra={name: "x"})[name] == "x"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.jars.repositories", "https://a.example/maven,https://ann:hidden@b.example/maven"),
        ("spark.hadoop.javax.jdo.option.ConnectionURL", "jdbc:mysql://h:3306/hive?user=ann&password=hidden"),
        ("spark.hadoop.javax.jdo.option.ConnectionURL", "jdbc:derby://h:1527/hive;user=ann;Password=hidden"),
    ],
)
def test_a_login_in_the_url_of_a_setting_is_refused_and_not_shown(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is a secret") as refused:
        spark_conf(extra={name: value})
    assert "hidden" not in str(refused.value)
    assert spark_conf(extra={"spark.hadoop.fs.defaultFS": "hdfs://h:8020/a@b"})["spark.hadoop.fs.defaultFS"]


@pytest.mark.parametrize(
    "environ", [{"SPARK_REMOTE": "sc://h/;token=hidden"}, {"SPARK_API_MODE": "Connect"}, {"SPARK_CONNECT_MODE": "1"}]
)
def test_spark_connect_in_the_environment_is_refused_and_not_shown(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="asks for Spark Connect") as refused:
        spark_environment(environ=environ)
    assert "hidden" not in str(refused.value)
    assert spark_environment(environ={"SPARK_API_MODE": "classic"})["SPARK_API_MODE"] == "classic"


@pytest.mark.parametrize("conf", [{"spark.remote": "sc://h/;token=hidden"}, {"spark.api.mode": "Connect"}])
def test_spark_connect_among_the_settings_is_refused_and_not_shown(conf: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="Spark Connect") as refused:
        spark_conf(extra=conf)
    assert "hidden" not in str(refused.value)
    assert spark_conf(extra={"spark.api.mode": "classic"})["spark.api.mode"] == "classic"


@pytest.mark.parametrize(
    "name",
    [
        "fs.s3a.path.style.access",
        "fs.s3a.aws.credentials.provider",
        "fs.s3a.endpoint",
        "fs.s3a.encryption.algorithm",
        "fs.azure.account.auth.type",
        "fs.azure.account.oauth2.client.id",
        "hadoop.security.credential.provider.path",
    ],
)
def test_setting_of_a_store_without_a_secret_is_passed_on(name: str) -> None:
    assert spark_conf(extra={f"spark.hadoop.{name}": "x"})[f"spark.hadoop.{name}"] == "x"
