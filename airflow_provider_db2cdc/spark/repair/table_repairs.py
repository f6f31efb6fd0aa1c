"""The repairs of a run's tables: each is compared, and then corrected if something differs."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Findings
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.foreign_changes import (
    Versions,
    check_exists,
    find_foreign_changes,
    repair_guarded,
)
from airflow_provider_db2cdc.spark.repair.comparison import TableComparison, compare_table
from airflow_provider_db2cdc.spark.repair.correction import correct_table

Known = tuple[int, Versions, TableComparison]
"""A comparison, the batch that it was made for, and the versions of the tables that it read."""


class TableRepairs:
    """Compare and correct tables. A comparison serves the correction, too, if the tables are still the same."""

    def __init__(self) -> None:
        self._compared: dict[TableId, Known] = {}

    def compare(self, context: BatchContext) -> Findings:
        """Compare a table, and keep what was found until it is corrected.

        :raises TargetError: when a table is gone, or another writer has changed the change log.
        """
        replica, last = context.replica, context.batch.last
        assert last is not None
        check_exists(replica)
        versions, is_foreign = find_foreign_changes(replica, last)
        compared = compare_table(context)
        self._compared[replica.table] = (context.planned.batch, versions, compared)
        return replace(compared.found, is_foreign=is_foreign)

    def apply(self, context: BatchContext) -> AppliedBatch:
        """Correct a table by the batch of a repair."""

        def correct(versions: Versions, is_foreign: bool) -> AppliedBatch:
            compared = self._known(context, versions) or compare_table(context)
            return correct_table(replace(context, is_foreign=is_foreign), compared)

        return repair_guarded(context.replica, context.batch, correct)

    def _known(self, context: BatchContext, versions: Versions) -> TableComparison | None:
        batch, compared_versions, compared = self._compared.pop(context.replica.table, (0, None, None))
        return compared if (batch, compared_versions) == (context.planned.batch, versions) else None
