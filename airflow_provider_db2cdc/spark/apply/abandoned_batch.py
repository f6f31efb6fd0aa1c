"""Batches that no run will finish, because their table begins again: the state gets what the change log has of them.

A tick that dies after its append leaves events in the change log that no merge brings into the state. So the state is
what the change log says before the table begins again, and the snapshot has nothing else to compare the source with.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.chunk_publish import rows_of_first_try
from airflow_provider_db2cdc.spark.apply.merge import find_state_change, write_state_change
from airflow_provider_db2cdc.spark.events.net_effect import LoggedEvents, count_batch


@failpoint("merge_abandoned")
def merge_abandoned(context: BatchContext) -> None:
    """Merge the events of an abandoned batch into the state. Its writers to the change log must be fenced.

    Call it in the order of the batches. Delta skips it if the run that died has merged the batch, or if it is repeated.
    """
    context = replace(context, replica=replace(context.replica, merges_abandoned=True))
    changes = LoggedEvents(context.events, count_batch(context.events))
    write_state_change(context, find_state_change(context, changes, rows_of_first_try(context)))
