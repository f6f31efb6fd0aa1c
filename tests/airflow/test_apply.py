import json
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from support.airflow_fixtures import Connect
from support.fake_spark import FakeSpark
from support.job_samples import job_spec

from airflow_provider_db2cdc.cdc.document import COMPRESSED
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.operators.apply import Db2CdcApplyOperator

PASSWORD = "s3cret-'}"


def task(connect: Connect, fake_spark: FakeSpark, spec: JobSpec | None = None, **arguments: Any) -> Db2CdcApplyOperator:
    connect(password=PASSWORD)
    usual = {"spark_conn_id": "spark_test", "spark_binary": str(fake_spark.binary), "jars": ""}
    text = (spec or job_spec("ORDERS", "ITEMS")).to_xcom()
    return Db2CdcApplyOperator(task_id="apply", spec=text, db2_conn_id="db2_test", **{**usual, **arguments})


Apply = Callable[..., JobResult]


@pytest.fixture
def apply(connect: Connect, fake_spark: FakeSpark) -> Apply:
    """Run the apply task on a spec and return its result. spark-submit's arguments are in fake_spark.call()."""

    def run(spec: JobSpec | None = None, **arguments: Any) -> JobResult:
        return JobResult.from_json(task(connect, fake_spark, spec, **arguments).execute({}))

    return run


def options(call: dict[str, Any], name: str) -> list[str]:
    argv = call["argv"]
    return [argv[place + 1] for place, word in enumerate(argv) if word == name]


def conf(call: dict[str, Any]) -> dict[str, str]:
    return dict(each.split("=", 1) for each in options(call, "--conf"))


def test_job_gets_the_spec_and_its_result_comes_back(apply: Apply, fake_spark: FakeSpark) -> None:
    spec = job_spec("ORDERS", "ITEMS")
    result = apply(spec)
    assert [(str(table.table), table.status) for table in result.tables] == [
        ("SALES.ORDERS", "applied"),
        ("SALES.ITEMS", "applied"),
    ]
    assert fake_spark.call()["spec"] == json.loads(spec.to_json())


def test_plan_and_result_of_many_tables_are_compressed_between_the_tasks(
    connect: Connect, fake_spark: FakeSpark
) -> None:
    spec = job_spec(*(f"ORDERS_{number}" for number in range(300)))
    job = task(connect, fake_spark, spec)
    result = job.execute({})
    assert str(job.spec).startswith(COMPRESSED)
    assert result.startswith(COMPRESSED)
    assert fake_spark.call()["spec"] == json.loads(spec.to_json())
    assert [line.table for line in JobResult.from_json(result).tables] == [line.table for line in spec.tables]


def test_login_reaches_the_job_in_its_environment_and_nowhere_else(
    apply: Apply, fake_spark: FakeSpark, capfd: pytest.CaptureFixture[str]
) -> None:
    apply()
    call = fake_spark.call()
    assert (call["env"]["DB2CDC_USER"], call["env"]["DB2CDC_PASSWORD"]) == ("ann", PASSWORD)
    assert PASSWORD not in " ".join(call["argv"])
    assert PASSWORD not in json.dumps(call["spec"])
    shown = capfd.readouterr()
    assert PASSWORD not in shown.out + shown.err


STORE = {"conn_type": "aws", "login": "AKIA1", "password": "s3cret/store", "extra": {"aws_session_token": "t0ken"}}


def test_stores_login_reaches_the_job_in_its_environment_and_nowhere_else(
    connect: Connect, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(STORE))
    job = task(connect, fake_spark, store_conn_id="lake")
    result = job.execute({})
    call = fake_spark.call()
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    assert [call["env"][name] for name in names] == ["AKIA1", "s3cret/store", "t0ken"]
    rendered = {name: str(getattr(job, name)) for name in job.template_fields}
    shown = capfd.readouterr()
    for place in (*call["argv"], json.dumps(call["spec"]), *rendered.values(), result, shown.out, shown.err):
        assert "s3cret" not in place
        assert "t0ken" not in place


@pytest.mark.parametrize(
    ("connection", "text"),
    [
        ({"conn_type": "http"}, "has type 'http', expected 'aws'"),
        ({"conn_type": "aws"}, "no access key or no secret"),
        ({**STORE, "extra": {"role_arn": "arn:aws:iam::1:role/x"}}, "has role_arn"),
    ],
)
def test_stores_connection_that_cannot_be_used_fails_at_once(
    connection: dict[str, Any], text: str, connect: Connect, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    with pytest.raises(AirflowFailException, match=text):
        task(connect, fake_spark, store_conn_id="lake").execute({})


def test_secret_among_sparks_settings_is_refused_while_the_dag_is_parsed(
    connect: Connect, fake_spark: FakeSpark
) -> None:
    with pytest.raises(ConfigurationError, match=r"fs\.s3a\.secret\.key is a secret") as refused:
        task(connect, fake_spark, conf={"spark.hadoop.fs.s3a.secret.key": "s3cret"})
    assert "s3cret" not in str(refused.value)


def test_a_secret_in_a_variable_of_spark_submit_is_refused(connect: Connect, fake_spark: FakeSpark) -> None:
    with pytest.raises(ConfigurationError, match="AWS_SECRET_ACCESS_KEY is a secret") as refused:
        task(connect, fake_spark, env_vars={"AWS_SECRET_ACCESS_KEY": "s3cret"})
    assert "s3cret" not in str(refused.value)


def test_login_is_not_put_on_the_command_line_of_a_cluster_either(
    apply: Apply, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", json.dumps({"conn_type": "spark", "host": "yarn"}))
    apply(env_vars={"MINE": "1"})
    call = fake_spark.call()
    assert call["env"]["DB2CDC_PASSWORD"] == PASSWORD
    assert PASSWORD not in " ".join(call["argv"])
    assert options(call, "--master") == ["yarn"]


def test_job_gets_a_folder_for_stacks_and_a_process_to_watch(
    apply: Apply, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DB2CDC_LOGS", str(tmp_path / "logs"))
    apply()
    call = fake_spark.call()
    assert call["env"]["DB2CDC_ERROR_LOG"].startswith(f"{tmp_path}/logs/sales-")
    assert call["has_pipe"]


def test_spec_is_in_a_private_folder_that_is_removed_afterwards(apply: Apply, fake_spark: FakeSpark) -> None:
    apply()
    call = fake_spark.call()
    assert call["spec_folder_mode"] == 0o700
    assert not Path(call["argv"][-1]).parent.exists()


def test_log_has_progress_and_warnings_but_neither_noise_nor_the_result(
    apply: Apply, capfd: pytest.CaptureFixture[str]
) -> None:
    apply()
    out = capfd.readouterr().out
    assert "DB2CDC table=S.T began" in out
    assert "WARN TaskSetManager" in out
    assert "INFO SparkContext" not in out
    assert "DB2CDC_RESULT" not in out


@pytest.mark.parametrize("is_kept", [True, False])
def test_progress_of_a_snapshot_is_in_the_xcom_while_the_job_runs(
    connect: Connect, fake_spark: FakeSpark, capfd: pytest.CaptureFixture[str], is_kept: bool
) -> None:
    pushed = {}

    def push(key: str, value: object) -> None:
        if not is_kept:
            raise OSError("the API is away")
        pushed[key] = value

    context: Any = {"ti": SimpleNamespace(xcom_push=push)}
    task(connect, fake_spark).execute(context)
    line = "snapshot 77 (incremental) running: 1 of 4 chunks, 10 rows, about 30 s more"
    assert pushed == ({"progress": line} if is_kept else {})
    assert f"DB2CDC {line}" in capfd.readouterr().out


def test_job_gets_script_and_bundle_and_the_users_settings_win(apply: Apply, fake_spark: FakeSpark) -> None:
    apply(conf={"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": 4}, py_files="/mine.zip")
    call = fake_spark.call()
    settings = conf(call)
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.sql.shuffle.partitions"] == "4"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert "DeltaSparkSessionExtension" in settings["spark.sql.extensions"]
    mine, bundle = options(call, "--py-files")[0].split(",")
    assert mine == "/mine.zip"
    assert Path(bundle).is_file()
    script, spec = call["argv"][-3], call["argv"][-2]
    assert (Path(script).name, spec) == ("apply.py", "--spec")


def test_python_of_the_job_is_this_one_by_default(apply: Apply, fake_spark: FakeSpark) -> None:
    apply()
    assert fake_spark.call()["env"]["PYSPARK_PYTHON"] == sys.executable
    apply(env_vars={"PYSPARK_PYTHON": "/other/python"})
    assert fake_spark.call()["env"]["PYSPARK_PYTHON"] == "/other/python"


def test_spark_of_spark_home_is_taken_when_one_is_set(apply: Apply, fake_spark: FakeSpark) -> None:
    home = fake_spark.binary.parent / "home"
    (home / "bin").mkdir(parents=True)
    there = type(fake_spark)(home / "bin")
    apply(spark_binary=None, env_vars={"SPARK_HOME": str(home)})
    assert there.call()["env"]["SPARK_HOME"] == str(home)


def packed(folder: Path, *names: str) -> str:
    """Write archives into a folder, as jars are, and return their paths in the order of their names."""
    for name in names:
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("META-INF/MANIFEST.MF", "")
    return ",".join(str(folder / name) for name in sorted(names))


DELTA = ("delta-spark_2.13-4.0.0.jar", "delta-storage-4.0.0.jar")


def test_jars_of_a_folder_are_named_in_full(apply: Apply, fake_spark: FakeSpark, tmp_path: Path) -> None:
    paths = packed(tmp_path, "com.ibm.db2_jcc-12.jar", *DELTA)
    apply(jars=None, jars_folder=str(tmp_path))
    assert conf(fake_spark.call())["spark.jars"] == paths


def test_a_folder_without_delta_is_refused_unless_spark_has_its_own(
    apply: Apply, fake_spark: FakeSpark, tmp_path: Path
) -> None:
    paths = packed(tmp_path, "com.ibm.db2_jcc-12.jar")
    with pytest.raises(AirflowFailException, match=f"the jars folder {tmp_path} lacks delta-spark, delta-storage"):
        apply(jars=None, jars_folder=str(tmp_path))
    assert not fake_spark.called
    apply(jars=None, jars_folder=str(tmp_path), conf={"spark.driver.extraClassPath": "/opt/delta-spark_2.13-4.0.0.jar"})
    assert conf(fake_spark.call())["spark.jars"] == paths
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "jars").mkdir()
    (home / "jars" / DELTA[0]).touch()
    there = type(fake_spark)(home / "bin")
    apply(jars=None, jars_folder=str(tmp_path), spark_binary=None, env_vars={"SPARK_HOME": str(home)})
    assert conf(there.call())["spark.jars"] == paths


def test_ours_join_the_jars_and_packages_of_the_user(apply: Apply, fake_spark: FakeSpark, tmp_path: Path) -> None:
    packed(tmp_path, "com.ibm.db2_jcc-12.jar", "mine.jar", *DELTA)
    given = {"spark.jars": "/a.jar", "spark.jars.packages": "io.example:conf:1"}
    apply(jars="/b.jar,/db2jcc4.jar", packages="io.example:mine:1", conf=given, jars_folder=str(tmp_path))
    call = fake_spark.call()
    # spark-submit would take what its options say instead of what the settings do.
    assert (options(call, "--jars"), options(call, "--packages")) == ([], [])
    assert conf(call)["spark.jars"] == ",".join(
        ["/a.jar", "/b.jar", "/db2jcc4.jar", *(f"{tmp_path}/{name}" for name in (*DELTA, "mine.jar"))]
    )
    assert conf(call)["spark.jars.packages"] == "io.example:conf:1,io.example:mine:1"


def test_an_empty_text_keeps_ours_away(apply: Apply, fake_spark: FakeSpark, tmp_path: Path) -> None:
    (tmp_path / "delta.jar").touch()
    apply(jars="", packages="io.example:mine:1", conf={"spark.jars": "/a.jar"}, jars_folder=str(tmp_path))
    settings = conf(fake_spark.call())
    assert (settings["spark.jars"], settings["spark.jars.packages"]) == ("/a.jar", "io.example:mine:1")


@pytest.mark.parametrize("given", ["", "/a.jar"])
def test_the_jars_are_the_same_once_more(connect: Connect, fake_spark: FakeSpark, tmp_path: Path, given: str) -> None:
    paths = packed(tmp_path, "com.ibm.db2_jcc-12.jar", *DELTA)
    once = task(connect, fake_spark, jars=given, jars_folder=str(tmp_path))
    for _ in range(2):
        once.execute({})
        named = conf(fake_spark.call()).get("spark.jars")
        assert named == (f"/a.jar,{paths}" if given else None)


def test_failed_table_is_logged_and_the_result_returned(
    apply: Apply, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAIL", "ITEMS")
    result = apply()
    assert [str(table.table) for table in result.failed] == ["SALES.ITEMS"]
    out = capfd.readouterr().out
    assert "table=SALES.ITEMS failed" in out
    assert "table=SALES.ORDERS applied +3 ~0 -0 r2" in out


def test_job_without_a_result_fails_with_its_last_lines_and_may_be_retried(
    apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DEATH", "java.lang.OutOfMemoryError: heap")
    with pytest.raises(
        AirflowException, match=r"exit code 1 and without a result: java.lang.OutOfMemoryError: h"
    ) as failed:
        apply()
    assert not isinstance(failed.value, AirflowFailException)
    assert "INFO" not in str(failed.value)


def test_error_of_the_job_that_lasts_is_not_retried(apply: Apply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DEATH", "TargetError: /lake belongs to the pipeline other. Choose another target.")
    with pytest.raises(AirflowFailException, match="without a result: /lake belongs to the pipeline other") as failed:
        apply()
    assert str(failed.value).index("belongs to") < str(failed.value).index("Its last lines")


def test_what_airflow_itself_adds_to_the_settings_reaches_the_job(
    apply: Apply, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = "airflow.providers.apache.spark.operators.spark_submit.inject_parent_job_information_into_spark_properties"
    monkeypatch.setattr(added, lambda conf, context: {**conf, "spark.openlineage.parentJobName": "sales"})
    apply(openlineage_inject_parent_job_info=True)
    assert conf(fake_spark.call())["spark.openlineage.parentJobName"] == "sales"


def test_missing_spark_connection_is_an_error_before_anything_runs(apply: Apply, fake_spark: FakeSpark) -> None:
    with pytest.raises(AirflowFailException, match=r"no connection 'spark_nowhere'\. Create it"):
        apply(spark_conn_id="spark_nowhere")
    assert not fake_spark.called


def test_cluster_mode_is_refused_because_the_result_could_not_come_back(apply: Apply, fake_spark: FakeSpark) -> None:
    with pytest.raises(AirflowFailException, match="deploy mode cluster"):
        apply(deploy_mode="cluster")
    assert not fake_spark.called


@pytest.mark.parametrize(
    "connection",
    [
        json.dumps({"conn_type": "spark", "host": "sc://h", "port": 15002, "password": "t0ken"}),
        json.dumps({"conn_type": "spark", "host": "sc://h/;token=t0ken"}),
        json.dumps({"conn_type": "spark_connect", "host": "h"}),
        "sc://h:15002",
    ],
)
def test_spark_connect_is_refused_before_spark_submit(
    connection: str, apply: Apply, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", connection)
    with pytest.raises(AirflowFailException, match=r"connection 'spark_test' is a Spark Connect server") as refused:
        apply()
    assert not fake_spark.called
    assert "t0ken" not in str(refused.value)


def test_spark_connect_in_the_workers_environment_is_refused(
    apply: Apply, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://h/;token=t0ken")
    with pytest.raises(AirflowFailException, match="the variable SPARK_REMOTE asks for Spark Connect") as refused:
        apply()
    assert not fake_spark.called
    assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize("is_defined", [True, False])
def test_missing_provider_of_kubernetes_is_named(
    apply: Apply, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, is_defined: bool
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", json.dumps({"conn_type": "spark", "host": "k8s://https://h:6443"}))
    monkeypatch.setattr(spark_submit, "kube_client", None, raising=False)
    if not is_defined:
        monkeypatch.delattr(spark_submit, "kube_client")
    with pytest.raises(AirflowFailException, match=r"Install apache-airflow-providers-cncf-kubernetes"):
        apply()
    assert not fake_spark.called


def test_missing_plan_is_named(connect: Connect, fake_spark: FakeSpark) -> None:
    operator = Db2CdcApplyOperator(task_id="apply", spec="None", spark_conn_id="spark_test")
    with pytest.raises(AirflowFailException, match="no plan to apply"):
        operator.execute({})


def test_killing_the_task_ends_spark_submit(
    connect: Connect, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLEEP_S", "60")
    operator = task(connect, fake_spark)
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(operator.execute, {})
        while not fake_spark.called and time.monotonic() < started + 10:
            time.sleep(0.02)
        operator.on_kill()
        with pytest.raises(AirflowException, match="without a result"):
            running.result(timeout=10)
    assert time.monotonic() < started + 20
