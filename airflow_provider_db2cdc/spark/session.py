"""Spark sessions: the one of the application, and one a table for confs of its own."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.errors import ConfigurationError

NEEDED_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
}
SMALL_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""For few rows: adaptive execution would submit a job of its own for each stage, and partitions would be empty."""

SMALL_ROWS = 20_000


def open_session(name: str) -> SparkSession:
    """Return the application's session, checked for what correct values hang on.

    :raises ConfigurationError: the JVM's zone is not UTC (java.sql.Timestamp would shift wall clocks in a DST
        hour), or Delta is not set up.
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    zone = spark._jvm.java.util.TimeZone.getDefault().getID()  # type: ignore[union-attr]
    if zone not in ("UTC", "Etc/UTC", "GMT"):
        raise ConfigurationError(
            f"the Spark driver's JVM runs in zone {zone}, which would shift timestamps",
            "Set -Duser.timezone=UTC in spark.driver.extraJavaOptions and spark.executor.extraJavaOptions.",
        )
    for key, value in NEEDED_CONF.items():
        if value not in spark.conf.get(key, "").split(","):  # type: ignore[union-attr]
            raise ConfigurationError(f"Spark runs without Delta: {key} lacks {value}", f"Set {key}={value}.")
    _configure(spark, {**SESSION_CONF, **SMALL_CONF})
    return spark


def table_session(spark: SparkSession, rows: int) -> SparkSession:
    """Return a session of its own on the same application, set for about `rows` rows.

    Delta takes a statement's transaction pair from the session, so each table needs one.
    """
    session = spark.newSession()
    _configure(session, {**SESSION_CONF, **(SMALL_CONF if rows <= SMALL_ROWS else {})})
    return session


def _configure(session: SparkSession, conf: dict[str, str]) -> None:
    for key, value in conf.items():
        session.conf.set(key, value)
