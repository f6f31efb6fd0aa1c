"""The place and the owner of a pipeline's tables, and the check that an existing table has this owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.delta.table_io import (
    create_table,
    set_properties,
    table_exists,
    table_properties,
)

MAPPING = "delta.columnMapping.mode"
"""With the value `name` a table may have columns of any name."""

VECTORS = "delta.enableDeletionVectors"
"""With the value `true` a merge may mark deleted rows of a file instead of writing the file again."""

APPEND_ONLY = "delta.appendOnly"
CHECKED = {"delta.setTransactionRetentionDuration": "interval 36500 days", APPEND_ONLY: "false"}
"""Properties that correct results depend on. The values are those of a table that is not append-only.

An existing table is checked for them. With a shorter retention Delta would forget transaction ids, and a retry would
append a batch twice. An append-only state would refuse the merge.
"""

OWN = {
    **CHECKED,
    MAPPING: "none",
    "delta.enableChangeDataFeed": "false",
    VECTORS: "false",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 1 week",
}
"""Properties of a new table, independent of the session's defaults. A person may change those that are not checked."""

LOG = {**OWN, APPEND_ONLY: "true"}
"""Properties of a new append-only table."""

OWNER_PROPERTY, LEDGER_PROPERTY = "db2cdc.pipeline", "db2cdc.ledger"
REFUSED_IN_NAMES = set(" ,;{}()\n\t=.`")


@dataclass(frozen=True)
class Owner:
    """The owner of a table: the pipeline, and the id of its batch log (`ledger`).

    The transaction ids of a table hold batch numbers of that batch log. If a table outlived its batch log, Delta would
    take new batches for old ones and skip them. So such a table is refused.
    """

    pipeline: str
    ledger: str

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that name the owner.

        The pipeline's name is in hex: Spark redacts a property whose value looks like a secret or an address.
        """
        return {OWNER_PROPERTY: self.pipeline.encode().hex(), LEDGER_PROPERTY: self.ledger}

    @property
    def mark(self) -> str:
        """The text that identifies the pipeline's commits in Delta's history."""
        return f"db2cdc/{self.pipeline}/{self.ledger}"


@dataclass(frozen=True)
class Place:
    """The place of a pipeline's tables, and their owner."""

    layout: Layout
    owner: Owner


@dataclass(frozen=True)
class TableDefinition:
    """A table as it must be: its columns as DDL, column names that it must accept, and its own properties.

    An existing table also gets the properties that `checked` names.
    """

    name: DeltaName
    ddl: str
    columns: Sequence[str]
    properties: Mapping[str, str]
    checked: Sequence[str] = ()


def ensure_table(spark: SparkSession, owner: Owner, table: TableDefinition) -> Mapping[str, str]:
    """Create a table if it is missing, and return its properties: those of the existing table, else the given ones.

    :raises TargetError: when the table exists and has another owner.
    """
    name = table.name
    needs_mapping = any(REFUSED_IN_NAMES & set(column) for column in table.columns)
    mapping = {MAPPING: "name"} if needs_mapping else {}
    wanted = {**OWN, **table.properties, **mapping}
    if not table_exists(spark, name):
        create_table(spark, name, table.ddl, {**owner.properties, **wanted})
        return table.properties
    existing = table_properties(spark, name)
    writer = owner_of(existing)
    if writer != owner:
        who = f"pipeline {writer.pipeline!r} under another ledger" if writer else "somebody else"
        raise TargetError(
            f"{name.name} was written by {who}",
            "Move it away, or give this pipeline a target of its own.",
        )
    if needs_mapping and existing.get(MAPPING) in (None, "none"):
        set_properties(spark, name, mapping)
    if differing := differing_properties(existing, wanted, (*CHECKED, *table.checked)):
        set_properties(spark, name, differing)
    return existing


def differing_properties(
    existing: Mapping[str, str], wanted: Mapping[str, str], checked: Iterable[str] = CHECKED
) -> dict[str, str]:
    """Return the checked properties, with the wanted values, that a table lacks or has with another value."""
    return {name: wanted[name] for name in checked if existing.get(name) != wanted[name]}


def set_checked_properties(spark: SparkSession, by_table: Mapping[DeltaName, Mapping[str, str]]) -> None:
    """Set the checked properties of each existing table to the values given for it."""
    for name, properties in by_table.items():
        if table_exists(spark, name):
            set_properties(spark, name, {key: properties[key] for key in CHECKED})


def owner_of(properties: Mapping[str, str]) -> Owner | None:
    """Return the owner that a table's properties name, or None if this provider did not write the table."""
    if OWNER_PROPERTY not in properties or LEDGER_PROPERTY not in properties:
        return None
    try:
        return Owner(bytes.fromhex(properties[OWNER_PROPERTY]).decode(), properties[LEDGER_PROPERTY])
    except ValueError:
        return None
