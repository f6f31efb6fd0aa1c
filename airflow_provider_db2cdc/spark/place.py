"""Where a pipeline's tables lie, whose they are, and that a table found there is not somebody else's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.delta import create_table, set_properties, table_exists, table_properties

MAPPING = "delta.columnMapping.mode"
"""By name, it lets a table hold columns of any name."""

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
    if not table_exists(spark, name):
        mapping = {MAPPING: "name"} if needs_mapping else {}
        create_table(spark, name, ddl, {**owner.properties, **properties, **mapping})
        return properties
    found = table_properties(spark, name)
    by = owner_of(found)
    if by != owner:
        who = f"pipeline {by.pipeline!r} under another ledger" if by else "somebody else"
        raise TargetError(
            f"{name.name} was written by {who}",
            "Move it away, or give this pipeline a target of its own.",
        )
    if needs_mapping and found.get(MAPPING) != "name":
        set_properties(spark, name, {MAPPING: "name"})
    return found


def owner_of(properties: Mapping[str, str]) -> Owner | None:
    """Return whose table it is by its properties, None when it is not this provider's."""
    if OWNER_PROPERTY not in properties or LEDGER_PROPERTY not in properties:
        return None
    try:
        return Owner(bytes.fromhex(properties[OWNER_PROPERTY]).decode(), properties[LEDGER_PROPERTY])
    except ValueError:
        return None
