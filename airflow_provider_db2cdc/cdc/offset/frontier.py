"""Frontiers: how far the tables of one tick go, so that no transaction is cut between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId


@dataclass(frozen=True)
class CandidateRange:
    """One table's possible range: from `after` at most to `upto`, the end of a commit within the row limit."""

    table: TableId
    after: Lsn
    upto: Lsn


def common_frontier(candidates: Iterable[CandidateRange]) -> Mapping[TableId, Lsn]:
    """Return each table's end for this tick.

    The foremost table is the one with the greatest start. Tables that can reach that start all stop at one frontier,
    the least of their ends. Any other table goes as far as it can and joins the frontier of a later tick.
    """
    steps = list(candidates)
    foremost = max((step.after for step in steps), default=None)
    if foremost is None:
        return {}
    frontier = min((step.upto for step in steps if step.upto >= foremost), default=foremost)
    return {step.table: frontier if step.upto >= foremost else step.upto for step in steps}
