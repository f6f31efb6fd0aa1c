"""The report of verifications: the Delta table `_db2cdc/verifications`, one row per group of chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference, Comparison, total
from airflow_provider_db2cdc.cdc.verify.report import TableReport, VerifiedChunks
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.ownership import LOG, Owner
from airflow_provider_db2cdc.spark.delta.table_io import (
    STATISTICS,
    append,
    create_table,
    literal_frame,
    load,
    table_exists,
)

VERIFICATIONS = (
    "verification string, kind string, schema string, table string, status string, fingerprint string, "
    "first_chunk int, last_chunk int, chunks int, source_rows bigint, state_rows bigint, missing bigint, "
    "surplus bigint, different bigint, keys_changed bigint, reads int, low_lsn string, high_lsn string, "
    "state_version bigint, started_at_ms bigint, ended_at_ms bigint, bounds string, "
    "differences array<struct<first: int, last: int, low: array<string>, high: array<string>, missing: bigint, "
    "surplus: bigint, different: bigint>>"
)
COLUMNS = (
    "verification", "kind", "schema", "table", "status", "fingerprint", "first_chunk", "last_chunk", "chunks",
    "source_rows", "state_rows", "missing", "surplus", "different", "keys_changed", "reads", "low_lsn", "high_lsn",
    "state_version", "started_at_ms", "ended_at_ms", "bounds", "differences",
)  # fmt: skip
BEGUN, EQUAL, DIFFERENT = "begun", "equal", "different"


@dataclass(frozen=True)
class ReportTable:
    """The report of the verifications of one kind (`rows` or `counts`) in a target.

    A verification of one kind does not continue one of the other. Rows are appended by any number of jobs.
    """

    spark: SparkSession
    layout: Layout
    owner: Owner
    kind: str
    turn: Lock = field(default_factory=Lock, compare=False)

    def read(self, verification: str) -> Mapping[TableId, TableReport]:
        """Return the newest begin of each table, with the chunks that were recorded under the same columns since."""
        name = self.layout.internal("verifications")
        if not table_exists(self.spark, name):
            return {}
        is_own = (F.col("verification") == verification) & (F.col("kind") == self.kind)
        rows = load(self.spark, name).where(is_own).collect()
        # Of several begins of a table the newest one counts.
        begun = {_table(row): row for row in sorted(rows, key=_started_at_ms) if row["status"] == BEGUN}
        return {
            table: _report(begin).with_chunks([_chunks(row) for row in rows if _belongs(row, begin)])
            for table, begin in begun.items()
        }

    def begin(self, verification: str, report: TableReport, at_ms: int) -> None:
        """Append a row with the bounds of a table."""
        row = {
            "status": BEGUN,
            "chunks": report.chunk_count,
            "bounds": json.dumps(report.bounds),
            "started_at_ms": at_ms,
        }
        self._append(verification, report, row)

    @failpoint("append_verified")
    def append(self, verification: str, report: TableReport, chunks: VerifiedChunks) -> None:
        """Append a row for compared chunks."""
        comparison = chunks.comparison
        found = total(comparison.differences)
        self._append(
            verification,
            report,
            {
                "status": DIFFERENT if found.rows else EQUAL,
                "first_chunk": chunks.first,
                "last_chunk": chunks.last,
                "chunks": report.chunk_count,
                "source_rows": comparison.source_rows,
                "state_rows": comparison.state_rows,
                "missing": found.missing,
                "surplus": found.surplus,
                "different": found.different,
                "keys_changed": comparison.keys_changed,
                "reads": chunks.reads,
                "low_lsn": None if chunks.low is None else str(chunks.low),
                "high_lsn": None if chunks.high is None else str(chunks.high),
                "state_version": chunks.state_version,
                "started_at_ms": chunks.started_at_ms,
                "ended_at_ms": chunks.ended_at_ms,
                "differences": [_difference_row(difference) for difference in comparison.differences],
            },
        )

    def _append(self, verification: str, report: TableReport, values: Mapping[str, Any]) -> None:
        name = self.layout.internal("verifications")
        with self.turn:
            if not table_exists(self.spark, name):
                properties = {**self.owner.properties, **LOG, STATISTICS: "verification"}
                create_table(self.spark, name, VERIFICATIONS, properties)
        ids = {
            "verification": verification,
            "kind": self.kind,
            "schema": report.table.schema,
            "table": report.table.name,
            "fingerprint": report.fingerprint,
        }
        row = tuple({**ids, **values}.get(column) for column in COLUMNS)
        append(literal_frame(self.spark, [row], VERIFICATIONS), name)


def _difference_row(difference: ChunkDifference) -> tuple[object, ...]:
    return (
        difference.first,
        difference.last,
        [*difference.low],
        [*difference.high],
        difference.missing,
        difference.surplus,
        difference.different,
    )


def _started_at_ms(row: Row) -> int:
    return int(row["started_at_ms"])


def _belongs(row: Row, begin: Row) -> bool:
    """Whether a row has chunks that were compared since a table was begun, under the same columns."""
    is_same = (_table(row), row["fingerprint"]) == (_table(begin), begin["fingerprint"])
    return is_same and row["status"] != BEGUN and _started_at_ms(row) >= _started_at_ms(begin)


def _table(row: Row) -> TableId:
    return TableId(row["schema"], row["table"])


def _report(row: Row) -> TableReport:
    bounds = tuple(tuple(bound) for bound in json.loads(row["bounds"]))
    return TableReport(_table(row), row["fingerprint"], bounds)


def _chunks(row: Row) -> VerifiedChunks:
    differences = tuple(map(_difference, row["differences"]))
    comparison = Comparison(row["source_rows"], row["state_rows"], row["keys_changed"], differences)
    low, high = (None if row[name] is None else Lsn.parse(row[name]) for name in ("low_lsn", "high_lsn"))
    return VerifiedChunks(
        _table(row), row["first_chunk"], row["last_chunk"], comparison, row["reads"], row["state_version"],
        low, high, row["started_at_ms"], row["ended_at_ms"],
    )  # fmt: skip


def _difference(item: Row) -> ChunkDifference:
    values = item.asDict()
    return ChunkDifference(**{**values, "low": tuple(values["low"]), "high": tuple(values["high"])})
