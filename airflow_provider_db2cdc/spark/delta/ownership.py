"""Where a pipeline's tables lie, whose they are, and that a table found there is not somebody else's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
"""By name, it lets a table hold columns of any name."""

APPEND_ONLY = "delta.appendOnly"
CHECKED = {"delta.setTransactionRetentionDuration": "interval 36500 days", APPEND_ONLY: "false"}
"""Properties that promises depend on, each with its value in a table that is not appended to only.

A table that exists is checked for them. Delta would forget transaction pairs, and a batch that is done again would be
appended twice; or it would refuse the merge.
"""

OWN = {
    **CHECKED,
    MAPPING: "none",
    "delta.enableChangeDataFeed": "false",
    "delta.enableDeletionVectors": "false",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 1 week",
}
"""What a new table has, whatever a session's defaults are. A person may change those that are not checked."""

LOG = {**OWN, APPEND_ONLY: "true"}
"""What a new table has that is appended to only."""

OWNER_PROPERTY, LEDGER_PROPERTY = "db2cdc.pipeline", "db2cdc.ledger"
REFUSED_IN_NAMES = set(" ,;{}()\n\t=.`")


@dataclass(frozen=True)
class Owner:
    """Whose tables they are: the pipeline, and the ledger whose batch numbers their transaction pairs count.

    A table that outlived its ledger would take new batches for old ones and skip them, so it is refused.
    """

    pipeline: str
    ledger: str

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that say so.

        The name is in hex: Spark shows no property whose value looks like a secret's or an address's name.
        """
        return {OWNER_PROPERTY: self.pipeline.encode().hex(), LEDGER_PROPERTY: self.ledger}

    @property
    def mark(self) -> str:
        """What the pipeline's commits are known by in Delta's history."""
        return f"db2cdc/{self.pipeline}/{self.ledger}"


@dataclass(frozen=True)
class Place:
    """Where a pipeline's tables lie, and whose they are."""

    layout: Layout
    owner: Owner


def ensure_table(
    spark: SparkSession, owner: Owner, name: DeltaName, columns: Iterable[str], ddl: str, properties: Mapping[str, str]
) -> Mapping[str, str]:
    """Create a table where it is missing, ready for columns of such names; return its properties, as found or given.

    :raises TargetError: there is one that is not the owner's.
    """
    needs_mapping = any(REFUSED_IN_NAMES & set(column) for column in columns)
    mapping = {MAPPING: "name"} if needs_mapping else {}
    own = {**OWN, **properties, **mapping}
    if not table_exists(spark, name):
        create_table(spark, name, ddl, {**owner.properties, **own})
        return properties
    found = table_properties(spark, name)
    by = owner_of(found)
    if by != owner:
        who = f"pipeline {by.pipeline!r} under another ledger" if by else "somebody else"
        raise TargetError(
            f"{name.name} was written by {who}",
            "Move it away, or give this pipeline a target of its own.",
        )
    if needs_mapping and found.get(MAPPING) in (None, "none"):
        set_properties(spark, name, mapping)
    if differing := differing_properties(found, own):
        set_properties(spark, name, differing)
    return found


def differing_properties(found: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the checked properties that a table does not have as it should."""
    return {name: own[name] for name in CHECKED if found.get(name) != own[name]}


def set_checked_properties(spark: SparkSession, own: Mapping[DeltaName, Mapping[str, str]]) -> None:
    """Give tables, as far as they are there, the checked ones of their properties again."""
    for name, properties in own.items():
        if table_exists(spark, name):
            set_properties(spark, name, {key: properties[key] for key in CHECKED})


def owner_of(properties: Mapping[str, str]) -> Owner | None:
    """Return whose table it is by its properties, None when it is not this provider's."""
    if OWNER_PROPERTY not in properties or LEDGER_PROPERTY not in properties:
        return None
    try:
        return Owner(bytes.fromhex(properties[OWNER_PROPERTY]).decode(), properties[LEDGER_PROPERTY])
    except ValueError:
        return None
