"""Tables that cannot go on: each becomes a refusal of the plan, and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from airflow_provider_db2cdc.cdc.job import RejectedTable
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import Db2CdcError, TickFailedError
from airflow_provider_db2cdc.sql.driver_error import UnreachableError

log = logging.getLogger(__name__)


class OfTable(Protocol):
    """Whatever belongs to one table."""

    @property
    def table(self) -> TableId:
        """The table's name."""


S = TypeVar("S", bound=OfTable)
T = TypeVar("T")


def each(items: Iterable[S], action: Callable[[S], T], refused: list[RejectedTable]) -> list[T]:
    """Return the action's results; a table for which it fails is refused, the others go on."""
    results: list[T] = []
    for item in items:
        try:
            results.append(action(item))
        except UnreachableError:
            raise
        except Db2CdcError as error:
            log.warning("refused: table=%s error=%s", item.table, error)
            refused.append(RejectedTable(item.table, str(error)))
    return results


def report_nothing(refused: Sequence[RejectedTable]) -> None:
    """Say that there is nothing to do, and raise where that is only so because tables are refused.

    :raises TickFailedError: tables are refused: it lists them.
    """
    if refused:
        listed = "\n".join(f"- {refusal.table}: {refusal.error}" for refusal in refused)
        raise TickFailedError(f"{len(refused)} table(s) cannot go on, and the others have no changes:\n{listed}")
    log.info("nothing to do")
