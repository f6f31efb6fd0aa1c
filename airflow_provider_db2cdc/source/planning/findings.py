"""What a plan finds out about the registrations and the source's history, and stores before it continues."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.offset.offset import new_revision
from airflow_provider_db2cdc.cdc.offset.request_change import Change, capture_interrupted, source_restored
from airflow_provider_db2cdc.cdc.offset.store import RequestStore
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.source.catalog import CaptureState
from airflow_provider_db2cdc.source.planning.table_plan import TablePlan

log = logging.getLogger(__name__)


def keep_inactive(captured: CaptureState, config: PipelineConfig, offsets: RequestStore) -> PipelineOffsets:
    """Store which registrations are inactive, and return the offsets. Nothing shows it once they are active again.

    A table with an offset that the lists do not choose now is included, because they may choose it later. This comes
    before the check of the lists. As long as that check fails no plan is made, and a registration may become active
    again unseen.

    Requests that commits have consumed are removed.
    """
    seen = offsets.read()
    inactive = [capture.table for capture in captured.registrations.values() if not capture.is_active]
    tables = [table for table in inactive if config.selection.chooses(table) or _has_offset(seen, table)]
    if not tables and seen.without_consumed() == seen.requests:
        return seen
    return _keep(offsets, seen, capture_interrupted(tables, new_revision()))


def _has_offset(offsets: PipelineOffsets, table: TableId) -> bool:
    return offsets.is_damaged(table) or offsets.get(table) is not None


def _keep(offsets: RequestStore, seen: PipelineOffsets, change: Change) -> PipelineOffsets:
    """Store what a plan has found out. Return the offsets after that, or as they were if it cannot be stored."""
    try:
        return offsets.put_requests(change)
    except OffsetError as error:
        log.warning("not kept what the plan has found out: %s", error)
        return seen


def keep_restored(
    before: Sequence[TablePlan],
    plans: Sequence[TablePlan],
    captured: CaptureState,
    offsets: tuple[RequestStore, PipelineOffsets],
) -> list[TablePlan]:
    """Store that the source was restored, and return the table plans with their new revisions.

    That covers all registered tables, chosen or not. Once the first table has begun again, nothing shows it for the
    others. `offsets` are the store, and what the plan has seen of it. A request that has come since then keeps its own
    revision, so this plan does not consume it.
    """
    known = {plan.table for plan in before if plan.source_restored}
    if not any(plan.source_restored and plan.table not in known for plan in plans):
        return list(plans)
    log.warning("the source was restored or capture reset: a commit that was applied is not in its log any more")
    (store, seen), change = offsets, source_restored([*captured.registrations], new_revision())
    if _keep(store, seen, change) is seen:
        return list(plans)
    found = replace(seen, requests=change(seen))
    stored = {plan.table: found.get(plan.table) for plan in plans}
    return [
        replace(plan, revision=plan.revision if (new := stored[plan.table]) is None else new.revision) for plan in plans
    ]
