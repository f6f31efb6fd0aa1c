"""Tables that cannot continue: the plan rejects each of them, and the others continue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from airflow_provider_db2cdc.cdc.offset.offset import new_revision
from airflow_provider_db2cdc.cdc.offset.store import RequestStore
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId
from airflow_provider_db2cdc.errors import Db2CdcError, TickFailedError
from airflow_provider_db2cdc.sql.driver_error import UnreachableError

log = logging.getLogger(__name__)


class OfTable(Protocol):
    """Something that belongs to one table."""

    @property
    def table(self) -> TableId:
        """The table's name."""


S = TypeVar("S", bound=OfTable)
T = TypeVar("T")


def each(items: Iterable[S], action: Callable[[S], T], rejected: list[RejectedTable]) -> list[T]:
    """Return the action's results. A table for which it fails is added to `rejected`, and the others continue.

    :raises UnreachableError: when the source cannot be reached, so that no table can continue.
    """
    results: list[T] = []
    for item in items:
        try:
            results.append(action(item))
        except UnreachableError:
            raise
        except Db2CdcError as error:
            log.warning("rejected: table=%s error=%s", item.table, error)
            rejected.append(RejectedTable(item.table, str(error)))
    return results


def report_idle(offsets: RequestStore, summary: PipelineSummary, rejected: Sequence[RejectedTable]) -> None:
    """Log that there is nothing to do, and keep which tables are rejected.

    :raises TickFailedError: when tables are rejected. It lists them.
    """
    _record_rejected(offsets, summary, rejected)
    if rejected:
        listed = "\n".join(f"- {rejection.table}: {rejection.error}" for rejection in rejected)
        raise TickFailedError(f"{len(rejected)} table(s) cannot continue, and the others have no changes:\n{listed}")
    log.info("nothing to do")


def _record_rejected(offsets: RequestStore, summary: PipelineSummary, rejected: Sequence[RejectedTable]) -> None:
    """Keep which tables a plan without work has rejected, because no tick will report them."""
    after = summary.with_rejected({table.table: table.error for table in rejected if table.is_replicated})
    if after != summary:
        revision, failures = new_revision(), tuple(failure for failure in after.failures if failure.is_rejected)
        offsets.put_requests(lambda seen: seen.recorded(revision, rejected=failures))
