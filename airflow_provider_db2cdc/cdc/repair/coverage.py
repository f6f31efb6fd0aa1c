"""How much of a table a repair can compare. Retention may have trimmed the change log."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.offset.offset import heal_hint
from airflow_provider_db2cdc.cdc.repair.pulled import Beginning
from airflow_provider_db2cdc.cdc.repair.repair import Backfill
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError

NOT_COUNTED = "its rows were not compared: without a key their copies are counted from the whole change log"


@dataclass(frozen=True)
class Coverage:
    """What a backfill compares of a table.

    `span` has the commits whose change rows are compared with the change log, None without any. The change log is
    complete from `first_batch` on. Events that are compared with change rows are of batches from `pulled_since` on.
    Without `compares_rows` the state is left as it is. `note` says what cannot be compared.
    """

    span: LsnRange | None
    first_batch: int = 0
    pulled_since: int = 0
    compares_rows: bool = True
    note: str = ""


def check_replayable(table: TableId, horizon: LogHorizon) -> None:
    """Check that a change log is complete.

    :raises TargetError: when retention has trimmed it. Keys whose last event is gone would be taken for deleted.
    """
    if horizon.is_trimmed:
        raise TargetError(
            f"{table}: a replay needs the whole change log, and this one is trimmed: it begins with batch "
            f"{horizon.batch}",
            f"Heal the table instead, which compares the state with the source: {heal_hint(table)}.",
        )


def find_coverage(
    work: Backfill, beginning: Beginning | None, horizon: LogHorizon, upto: Lsn | None, has_key: bool
) -> Coverage:
    """Return what a backfill can compare.

    `upto` is the table's position, None if the change table is another than the one that the position belongs to. A
    table that has begun again since its log was trimmed has lost none of its new events.
    """
    trimmed = horizon.after if beginning is None or beginning.batch < horizon.batch else None
    compares_rows = has_key or not horizon.is_trimmed
    notes = [f"the change log is trimmed up to {trimmed}: the interval is compared from there on"]
    notes = notes if trimmed is not None and (work.after is None or work.after < trimmed) else []
    note = "; ".join([*notes, *([] if compares_rows else [f"{NOT_COUNTED}, which is trimmed"])])
    pulled_since = max(0 if beginning is None else beginning.batch, horizon.batch)
    span = (
        None
        if beginning is None or upto is None
        else _span(work, beginning.after if trimmed is None else trimmed, upto)
    )
    return Coverage(span, horizon.batch, pulled_since, compares_rows, note)


def _span(work: Backfill, begin: Lsn, upto: Lsn) -> LsnRange | None:
    """Return the commits of an interval after `begin` and up to the position, None if there can be none."""
    after, end = max(work.after or begin, begin), min(work.upto or upto, upto)
    return LsnRange(after, end) if after < end else None
