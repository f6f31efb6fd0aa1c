"""Ranges that the plan did not count are counted at the source: together, or separately if that fails."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.job import JobSpec, SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.jdbc.change_count import with_row_counts
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection

TABLES = [TableId("S", f"T{at}") for at in range(120)]
COLUMNS = (Column("ID", "INTEGER", 4, nullable=False),)


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def task(table: TableId) -> TableTask:
    identity = CaptureIdentity(f"ASN.CD_{table.name}", "", "", "")
    capture = CaptureRegistration(table, "ASN", f"CD_{table.name}", "A", "", "DI", None, None, None, COLUMNS, identity)
    return TableTask(TableSchema(table, COLUMNS, ("ID",)), capture, lsn(1), lsn(5), 0)


def entry(of: TableTask) -> PlannedBatch:
    """Return the ranges that the plan did not count. They end after the plan's range."""
    return PlannedBatch(3, "run", "0a", of.table, lsn(5), lsn(9), 7, of.capture.identity)


@dataclass
class Counting(DriverConnection):
    """A source whose tables have one change each. The change tables of the `broken` ones cannot be read."""

    jvm: None = None
    connection: None = None
    broken: Collection[str] = ()
    counts: list[int] = field(default_factory=list)

    def text_rows(self, select: str) -> list[list[str | None]]:
        if "IBMSNAP_REGISTER" in select:
            row = ["ASN", "", "A", None, "Y", None, None, None, None]
            return [["S", table.name, row[0], f"CD_{table.name}", *row[2:]] for table in TABLES]
        if "SYSCAT" in select:
            named = [TableId(*pair) for pair in re.findall(r"TABSCHEMA = '(\w+)' AND TABNAME = '(\w+)'", select)]
            return [[table.schema, table.name, "ID", "INTEGER", "4", "0", "N", "0"] for table in named]
        asked = re.findall(r'SELECT (\d+) AS PLACE.*?"CD_(T\d+)"', select)
        self.counts.append(len(asked))
        if any(name in self.broken for _, name in asked):
            raise OSError("SQLCODE=-668")
        return [[place, "1"] for place, _ in asked]


def count(source: Counting) -> tuple[dict[str, int | None], dict[TableId, Exception]]:
    """Return the counted rows by table, and the errors of the tables without a count."""
    errors: dict[TableId, Exception] = {}
    tasks = tuple(map(task, TABLES))
    at = SourceSpec("jdbc:db2://h:1/D:", "D", "s", "ASN")
    spec = JobSpec("p", "run", "0a", 2_000, "/t", at, CapturePosition(lsn(5), "", "", 0.0), tasks)
    found = with_row_counts(spec, [*map(entry, tasks)], source, errors.__setitem__)
    return {one.table.name: one.rows for one in found}, errors


def test_no_statement_counts_more_than_a_database_takes() -> None:
    source = Counting()
    rows, errors = count(source)
    assert (rows, errors) == ({table.name: 1 for table in TABLES}, {})
    assert source.counts == [50, 50, 20]


def test_tables_are_counted_separately_if_one_of_them_cannot_be_counted() -> None:
    source = Counting(broken=["T60"])
    rows, errors = count(source)
    assert rows == {table.name: 1 for table in TABLES if table.name != "T60"}
    assert [table.name for table in errors] == ["T60"]
    assert "SQLCODE=-668" in str(errors[TABLES[60]])
    assert source.counts == [50, 50, *[1] * 50, 20]
