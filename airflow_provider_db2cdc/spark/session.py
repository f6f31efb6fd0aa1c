"""Spark sessions: one for the application, and one per table with its own configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.spark_master import is_one_machine
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
    # A value that does not fit its column must be an error, not a null.
    "spark.sql.ansi.enabled": "true",
    # `${x}` in a literal must stay text, not become a variable.
    "spark.sql.variable.substitute": "false",
    # `text_literal` escapes backslashes and quotes.
    "spark.sql.parser.escapedStringLiterals": "false",
    # Db2 pads a CHAR by bytes or code units. Spark would pad it again, to as many code points.
    "spark.sql.readSideCharPadding": "false",
    # Rows of a missing file would count as rows that the source no longer has.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # LEGACY would write days before 1582 in another calendar, which some readers of Parquet do not know.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.databricks.delta.merge.materializeSource": "none",
    # A stale snapshot of a table would hide batches that another run has planned or applied meanwhile.
    "spark.databricks.delta.stalenessLimit": "0",
    # It would commit after each write, and the version of that commit would be taken for the write's.
    "spark.databricks.delta.autoCompact.enabled": "false",
    # Under STRICT Delta writes in a newer way, which does not support transaction ids.
    "spark.databricks.delta.v2.enableMode": "AUTO",
    # The transaction id of a step must stay until the step is over.
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
}
MARK = "spark.databricks.delta.commitInfo.userMetadata"
"""Delta's setting: the user metadata that Delta's history shows for each commit of a session."""

SMALL_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings for few rows. Adaptive execution would submit a job per stage, and most partitions would be empty.

Code generation is off, too: each task would generate the source text of its projections again, only to find the
compiled class by it. That was a third of the CPU time of a tick with few rows. For the same reason one task replays the
log of a Delta table.
"""

COMPILED_CONF = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
COMPILED_ROWS = 200_000
"""From so many rows on it pays to compile the code that reads them."""

SMALL_ROWS = 20_000
"""Up to so many rows a session uses SMALL_CONF."""


def open_session(name: str) -> SparkSession:
    """Return the application's session, after a check of settings that correct values depend on.

    :raises ConfigurationError: when the JVM's time zone is not UTC, or Delta is not set up. In another zone
        java.sql.Timestamp would shift local times in the hour of a DST change.
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
    """Return how many tasks Spark runs at once. None if that is unknown, or grows with the number of tasks."""
    context, conf = spark.sparkContext, spark.conf
    is_elastic = str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
    if conf.get("spark.default.parallelism", None) or (is_elastic and not is_one_machine(str(context.master))):
        return None
    return max(1, context.defaultParallelism // int(conf.get("spark.task.cpus", "1") or 1))


def kept_level(master: str, is_few: bool) -> StorageLevel:
    """Return where rows are kept that cannot be read twice: on disk, few of them also in memory.

    On a cluster two executors keep them, so that the loss of one loses no row.
    """
    return StorageLevel(True, is_few, False, False, 1 if is_one_machine(master) else 2)


@contextmanager
def temporary_conf(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to a session within a block, and restore the earlier ones after it."""
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
    """Apply SMALL_CONF within a block if `rows` are few: a session for many rows may also read or checkpoint few."""
    return nullcontext() if rows is None or rows > SMALL_ROWS else temporary_conf(session, SMALL_CONF)


@contextmanager
def conf_for_many(session: SparkSession, rows: int) -> Iterator[None]:
    """Configure a session for about `rows` rows within a block. Outside of it the session is one for few."""
    if rows > SMALL_ROWS:
        _reset_small(session)
    try:
        yield
    finally:
        _configure(session, SMALL_CONF)


def conf_to_read(rows: int) -> Mapping[str, str]:
    """Return settings for a statement that joins few rows with so many others.

    A merge of 1,000 keys into 2,000,000 rows took 13 seconds without code generation and 3 seconds with it.
    """
    return COMPILED_CONF if rows > COMPILED_ROWS else {}


class TableSessions:
    """One session per table, on the same application. Only one thread at a time may use a session.

    Delta takes a statement's transaction id from the session, and writes the new version into it. Each commit has the
    `mark`, by which the pipeline recognizes its own commits.
    """

    def __init__(self, spark: SparkSession, mark: str) -> None:
        self._spark = spark
        self._conf = {**SESSION_CONF, MARK: mark}
        self._by_table: dict[TableId, SparkSession] = {}

    def session(self, table: TableId, rows: int) -> SparkSession:
        """Return the table's session, configured for about `rows` rows."""
        session = self._by_table.get(table)
        if session is None:
            session = self._by_table[table] = self._open()
            _configure(session, self._conf)
        if rows <= SMALL_ROWS:
            _configure(session, SMALL_CONF)
        else:
            _reset_small(session)
        return session

    @failpoint("open_session")
    def _open(self) -> SparkSession:
        return self._spark.newSession()


def _reset_small(session: SparkSession) -> None:
    # RESET restores the values that the application was submitted with. Unsetting would lose them.
    for key in SMALL_CONF:
        session.sql(f"RESET {key}")


def _configure(session: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        session.conf.set(key, value)
