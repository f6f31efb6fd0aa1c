"""What Spark itself makes of a job's arguments for masters that do not run here.

A recorded spark-submit shows the arguments. Spark's own SparkSubmit turns them into what it would ship and start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.fake_spark import FakeSpark
from support.job_samples import job_spec
from support.submitted import JARS

from airflow_provider_db2cdc.config.pipeline import SparkConfig
from airflow_provider_db2cdc.submit.bundle import build_bundle
from airflow_provider_db2cdc.submit.runner import Login, run_job

pytestmark = pytest.mark.spark

PYTHON_RUNNER = "org.apache.spark.deploy.PythonRunner"
KUBERNETES = {"spark.kubernetes.namespace": "etl", "spark.kubernetes.container.image": "spark:4.2.0"}


def recorded(folder: Path, master: str, conf: dict[str, str]) -> Any:
    """Run a job with a spark-submit that only records its call."""
    fake = FakeSpark(folder)
    run_job(
        job_spec("T"),
        SparkConfig(binary=str(fake.binary), master=master, jars=JARS, conf=conf),
        Login("u", "pw-1"),
        lambda line: None,
    )
    return fake.call()


def prepared(spark: SparkSession, argv: list[str]) -> tuple[str, list[str], dict[str, str]]:
    """Return the main class, its arguments and the settings that Spark's SparkSubmit makes of arguments."""
    jvm: Any = spark._jvm
    converters = getattr(getattr(jvm.scala.jdk.javaapi, "CollectionConverters$"), "MODULE$")
    given = jvm.java.util.ArrayList()
    for item in argv:
        given.add(item)
    environment = jvm.scala.sys.package.env().updated("HADOOP_CONF_DIR", "/etc/hadoop")
    deploy = jvm.org.apache.spark.deploy
    arguments = deploy.SparkSubmitArguments(converters.asScala(given).toSeq(), environment)
    nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    result = deploy.SparkSubmit().prepareSubmitEnvironment(arguments, nothing)
    settings = {pair._1(): pair._2() for pair in result._3().getAll()}
    return result._4(), list(converters.asJava(result._1())), settings


@pytest.mark.parametrize(
    ("master", "conf", "jars_setting", "zip_setting"),
    [
        ("yarn", {}, "spark.yarn.dist.jars", "spark.yarn.dist.pyFiles"),
        ("k8s://https://kubernetes:6443", KUBERNETES, "spark.jars", "spark.files"),
        ("spark://master:7077", {}, "spark.jars", "spark.files"),
    ],
    ids=["yarn", "kubernetes", "standalone"],
)
def test_spark_would_ship_the_jars_and_the_package(
    spark: SparkSession, tmp_path: Path, master: str, conf: dict[str, str], jars_setting: str, zip_setting: str
) -> None:
    call = recorded(tmp_path, master, conf)
    main_class, arguments, settings = prepared(spark, call["argv"])
    assert main_class == PYTHON_RUNNER, "the driver runs on this machine"
    assert arguments[0].endswith("/spark_jobs/apply.py")
    assert arguments[2:] == ["--spec", call["argv"][-1]]
    assert settings["spark.submit.deployMode"] == "client"
    assert settings["spark.master"] == master
    shipped = {Path(jar).name for jar in settings[jars_setting].split(",")}
    assert shipped >= {jar.name for jar in (JARS / "spark").glob("*.jar")}
    assert Path(settings[zip_setting]).name == build_bundle().name
    assert settings.items() >= conf.items()
    assert "pw-1" not in str((arguments, settings))
    assert "SPARK_LOCAL_IP" not in call["env"], "executors could not reach a driver at 127.0.0.1"
