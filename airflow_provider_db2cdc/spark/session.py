"""Spark sessions: the one of the application, and one a table for confs of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.failpoint import failpoint

NEEDED_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    # A value that does not fit its column is an error, not a null.
    "spark.sql.ansi.enabled": "true",
    # `${x}` in a value that stands in a statement is itself, not a variable.
    "spark.sql.variable.substitute": "false",
    # A text in a statement has its backslashes and quotes escaped.
    "spark.sql.parser.escapedStringLiterals": "false",
    # Db2 has padded a CHAR by its own count, of bytes or code units; Spark would pad it again to as many code points.
    "spark.sql.readSideCharPadding": "false",
    # Rows of a file that is missing would be taken for rows that the source has no longer.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # LEGACY would write days before 1582 by another calendar, which not every reader of Parquet knows of.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.databricks.delta.merge.materializeSource": "none",
    # A snapshot of before would hide what another run has planned or applied meanwhile.
    "spark.databricks.delta.stalenessLimit": "0",
    # It would commit behind each write, and that commit's version would be taken for the write's.
    "spark.databricks.delta.autoCompact.enabled": "false",
    # Delta's newer way to write, under STRICT, knows no transaction pairs.
    "spark.databricks.delta.v2.enableMode": "AUTO",
    # A step's pair has to stay until the step is over.
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # What was staged is read by its version also a week after a death, as long as its files are there.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}
MARK = "spark.databricks.delta.commitInfo.userMetadata"
"""What Delta's history tells of each commit that a session makes."""

SMALL_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For few rows: adaptive execution would submit a job of its own for each stage, and partitions would be empty.

Nor is code generated: each task would write its projections' text anew, to find by it what is compiled already, which
was a third of what a tick of few rows computes.
"""

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


def slots(spark: SparkSession) -> int | None:
    """Return how many tasks Spark runs side by side; None where that is not known, or as many as there are tasks."""
    context, conf = spark.sparkContext, spark.conf
    is_elastic = str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
    if conf.get("spark.default.parallelism", None) or (is_elastic and not str(context.master).startswith("local")):
        return None
    return max(1, context.defaultParallelism // int(conf.get("spark.task.cpus", "1") or 1))


@contextmanager
def temporary_conf(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Have a session set so for a while, and then as it was."""
    before = {key: session.conf.get(key, None) for key in conf}
    _configure(session, conf)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)


def conf_for_row_count(session: SparkSession, rows: int | None) -> AbstractContextManager[None]:
    """Have a session set for few rows for a while, if they are: what is read then, or checkpointed, is few of many."""
    return nullcontext() if rows is None or rows > SMALL_ROWS else temporary_conf(session, SMALL_CONF)


class TableSessions:
    """A session a table, on the same application; each belongs to one thread at a time.

    Delta takes a statement's transaction pair from the session, and tells there which version it has made. Each commit
    bears the `mark`, by which the pipeline knows its own.
    """

    def __init__(self, spark: SparkSession, mark: str) -> None:
        self._spark = spark
        self._conf = {**SESSION_CONF, MARK: mark}
        self._of: dict[TableId, SparkSession] = {}

    def session(self, table: TableId, rows: int) -> SparkSession:
        """Return the table's session, set for about `rows` rows."""
        session = self._of.get(table)
        if session is None:
            session = self._of[table] = self._open()
            _configure(session, self._conf)
        if rows <= SMALL_ROWS:
            _configure(session, SMALL_CONF)
        else:
            # To unset them would forget what the application was submitted with.
            for key in SMALL_CONF:
                session.sql(f"RESET {key}")
        return session

    @failpoint("open_session")
    def _open(self) -> SparkSession:
        return self._spark.newSession()


def _configure(session: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        session.conf.set(key, value)
