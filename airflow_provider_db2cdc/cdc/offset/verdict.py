"""Whether a table can continue from its offset: the rule of the plan, `db2cdc doctor` and `db2cdc status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, find_recorded_gap, gap_error
from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset, ahead_error
from airflow_provider_db2cdc.errors import GapError, OffsetError

Kind = Literal["begins", "restored", "idle", "stopped", "mended", "pulled"]

REPLACED = (
    "its capture was replaced since its offset (registered again, change table or source table created again, or a "
    "cold start)"
)


@dataclass(frozen=True)
class Verdict:
    """What a tick does with a table.

    `begins`: it has no position, or a restart was requested. `restored`: a restore of its offset was requested. `idle`:
    the mode does not pull its changes. `stopped`: the `error` stops it. `mended`: a snapshot repairs the error, because
    the mode says so. `pulled`: its changes are pulled.
    """

    kind: Kind
    error: GapError | OffsetError | None = None


def judge(
    capture: CaptureRegistration, offset: Offset | None, position: Lsn, is_pulled: bool = True, mends: bool = False
) -> Verdict:
    """Return what a tick does with a table, as far as the source and the offset show it without the target.

    `is_pulled`: the mode pulls the table's changes. `mends`: the mode repairs lost changes by a snapshot. Read the
    offset before the capture position. Otherwise a tick that ends between the two leaves the offset beyond the
    position.
    """
    if offset is None or offset.restart:
        return Verdict("begins")
    if offset.restore:
        return Verdict("restored")
    if not offset.has_position:
        return Verdict("begins")
    if not is_pulled:
        return Verdict("idle")
    error = _error(capture, offset, position)
    return Verdict("pulled") if error is None else Verdict("mended" if mends else "stopped", error)


def _error(capture: CaptureRegistration, offset: Offset, position: Lsn) -> GapError | OffsetError | None:
    current, missed = capture.identity, offset.capture_interrupted or offset.source_restored
    if offset.is_ahead and not missed:
        return ahead_error(offset.table, offset.lsn, offset.committed_lsn)
    gap = find_recorded_gap(offset.table, offset.lsn, offset.capture_interrupted, offset.source_restored)
    if gap is None and offset.capture not in ("", current.digest):
        gap = REPLACED
    try:
        now = CapturePoint(position, current, capture.pruned_upto)
        gap = gap or find_gap(CapturePoint(offset.lsn, None), now)
    except OffsetError as error:
        return error
    return None if gap is None else gap_error(offset.table, gap)
