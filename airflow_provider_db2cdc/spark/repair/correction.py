"""The batch of a repair: the events that the change log lacks, then the rows of the state that differ."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.merge import StateVersion, current_state
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.broadcast import if_small_to_all
from airflow_provider_db2cdc.spark.quoting import quoted
from airflow_provider_db2cdc.spark.repair.comparison import TableComparison
from airflow_provider_db2cdc.spark.repair.last_words import DOUBLED
from airflow_provider_db2cdc.spark.session import conf_for_many
from airflow_provider_db2cdc.tick.log import log_progress


def correct_table(context: BatchContext, compared: TableComparison) -> AppliedBatch:
    """Write what a comparison found, and return the batch as applied. The replica must be prepared.

    Each write uses up its transaction id, also if there is nothing to write: a run that hung cannot write it later.
    """
    replica, planned, last = context.replica, context.planned, context.batch.last
    assert last is not None
    assert planned.repair is not None
    with conf_for_many(replica.spark, compared.found.events_added):
        added = load(replica.spark, replica.layout.changes(replica.table)).limit(0)
        replica.append_changes(added if compared.added is None else compared.added, planned.batch, "backfill")
    state, found = _merge(context, compared), compared.found
    log_progress(
        f"table={planned.table} batch={planned.batch} repaired: {found.events_added} events added, "
        f"{found.rows_corrected} rows corrected"
    )
    # The added events stand under other batches.
    counted = replace(last, batch=planned.batch, creates=0, updates=0, deletes=0, reads=0, rows=state.rows)
    bare = replace(counted, snapshot=None, chunk_range=None, published={}, repair=planned.repair.repair.type)
    # A commit that was lost may be newer than all that were applied.
    as_of_ms = max(last.as_of_ms, planned.planned_at_ms)
    return replace(bare, state_version=state.version, as_of_ms=as_of_ms)


def _merge(context: BatchContext, compared: TableComparison) -> StateVersion:
    """Merge the corrections. Of a key with several rows each is deleted first.

    The rows are counted from the state: the number that the last batch has left may be what was wrong.
    """
    replica, batch = context.replica, context.planned.batch
    if compared.corrections is None:
        nothing = load(replica.spark, replica.layout.state(replica.table)).drop("__batch").limit(0)
        return current_state(context, None, replica.append_rows(nothing, batch))
    rows, bounds = compared.corrections
    with conf_for_many(replica.spark, bounds.rows):
        doubled = rows.where(DOUBLED).select(*map(quoted, replica.key_names))
        if not doubled.isEmpty():
            replica.delete_keys(doubled, batch)
        small = if_small_to_all(rows.drop(DOUBLED), bounds.rows, replica.schema)
        _, version = replica.merge(small, batch, bounds.bounds, context.rows_before)
    return current_state(context, None, version)
