"""The current states of a pipeline's tables, all as of one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.errors import ConfigurationError, TargetError
from airflow_provider_db2cdc.read.change_range import check_zone
from airflow_provider_db2cdc.spark.delta.table_io import load, newest_version, table_exists


def read_state(
    spark: SparkSession, target: str, at: datetime | Lsn | None = None, tables: Iterable[str] | None = None
) -> Mapping[str, DataFrame]:
    """Return the rows of each table by its name in the manifest, all as of one manifest row.

    Without `at` it is the newest row. With a time, it is the newest row that shows nothing which was committed later.
    With an LSN, it is the newest row whose frontier is not beyond it. `tables` limits the result to these names.

    :raises ConfigurationError: when the manifest has no such row or table, or the time has no time zone.
    :raises TargetError: when Delta cannot read a version that the row names any more.
    """
    row = _manifest_row(spark, Layout(target), at)
    wanted = [*row["tables"]] if tables is None else [*tables]
    if missing := sorted({*wanted} - {*row["tables"]}):
        raise ConfigurationError(
            f"the manifest of {target} has no table {', '.join(missing)} at batch {row['batch']}",
            f"It has {', '.join(sorted(row['tables'])) or 'none'}.",
        )
    return {name: _rows(spark, target, name, row) for name in wanted}


def _manifest_row(spark: SparkSession, layout: Layout, at: datetime | Lsn | None) -> Row:
    manifest = layout.internal("manifest")
    if not table_exists(spark, manifest):
        raise ConfigurationError(f"there is no pipeline's target at {layout.target}", "Check the path or schema name.")
    rows = load(spark, manifest)
    match at:
        case Lsn():
            rows = rows.where((F.col("frontier") <= str(at)) & (F.length("frontier") == len(str(at))))
        case datetime():
            check_zone(at)
            rows = rows.where(F.col("as_of_ms") <= int(at.timestamp() * 1000))
    found = rows.orderBy(F.desc("batch")).limit(1).collect()
    if not found:
        raise _no_row(load(spark, manifest), layout, at)
    return found[0]


def _no_row(manifest: DataFrame, layout: Layout, at: datetime | Lsn | None) -> ConfigurationError:
    when = "" if at is None else f" at or before {at}"
    problem = f"the manifest of {layout.target} has no row{when}"
    oldest = manifest.orderBy("batch").limit(1).collect()
    if not oldest:
        remedy = "A row is written once all initial snapshots are complete, and no table fails."
    else:
        time = datetime.fromtimestamp(oldest[0]["as_of_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
        remedy = (
            f"Read a moment from {time} (LSN {oldest[0]['frontier']}) on. That is its oldest row: maintenance deletes "
            "rows whose versions cannot be read any more."
        )
    return ConfigurationError(problem, remedy)


def _rows(spark: SparkSession, target: str, name: str, row: Row) -> DataFrame:
    state, version = Layout(target).state(parse_table(name, "tables")), int(row["tables"][name])
    try:
        rows = load(spark, state, version)
        if newest_version(spark, state) != version:
            _check_files(rows)
    except Exception as error:
        raise _unreadable(name, state, version, row) from error
    return rows


def _check_files(rows: DataFrame) -> None:
    """Open each file of an older version, without reading columns: a VACUUM may have deleted some of them."""
    rows.select(F.rand().alias("x")).where("x < 0").isEmpty()


def _unreadable(name: str, state: DeltaName, version: int, row: Row) -> TargetError:
    written = datetime.fromtimestamp(row["written_at_ms"] / 1000, UTC)
    return TargetError(
        f"{name}: version {version} of {state.name} cannot be read any more, which the manifest names at batch "
        f"{row['batch']} ({written:%Y-%m-%d %H:%M} UTC)",
        "VACUUM has deleted its files, or it is older than Delta serves. Read a newer moment. To keep versions longer, "
        "raise delta.deletedFileRetentionDuration and delta.logRetentionDuration of the table.",
    )
