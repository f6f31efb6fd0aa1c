"""Whether a table can go on from its offset: the one rule of the plan, of `db2cdc doctor` and of `db2cdc status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_provider_db2cdc.cdc.capture.gap import find_gap, gap_error
from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset, ahead_error
from airflow_provider_db2cdc.errors import GapError, OffsetError

Kind = Literal["begins", "idle", "stopped", "mended", "pulled"]

REPLACED = (
    "capture is another one than at its offset (registered anew, change table or source table created anew, or a cold "
    "start)"
)


@dataclass(frozen=True)
class Verdict:
    """What a tick does with a table.

    It `begins`: it has no position, or a restart was asked for. It is `idle`: nobody pulls its changes. It is `stopped`
    by the `error`, or `mended` of it by a snapshot where the mode does so. Else its changes are `pulled`.
    """

    kind: Kind
    error: GapError | OffsetError | None = None


def judge(
    capture: CaptureRegistration, offset: Offset | None, fence: Lsn, is_pulled: bool = True, mends: bool = False
) -> Verdict:
    """Return what a tick does with a table, as far as it can be told without the target.

    `is_pulled` says whether the mode pulls its changes, `mends` whether it mends what was lost by a snapshot. The
    offset is to be read before the fence: a tick that ends between the two would leave it beyond.
    """
    if offset is None or offset.restart or not offset.has_position:
        return Verdict("begins")
    if not is_pulled:
        return Verdict("idle")
    error = _error(capture, offset, fence)
    return Verdict("pulled") if error is None else Verdict("mended" if mends else "stopped", error)


def _error(capture: CaptureRegistration, offset: Offset, fence: Lsn) -> GapError | OffsetError | None:
    now, missed = capture.identity, offset.capture_interrupted or offset.source_restored
    if offset.is_ahead and not missed:
        return ahead_error(offset.table, offset.lsn, offset.committed_lsn)
    is_replaced = offset.capture not in ("", now.digest) and not missed
    try:
        flags = (offset.capture_interrupted, offset.source_restored)
        gap = (
            REPLACED
            if is_replaced
            else find_gap(offset.table, offset.lsn, None, now, capture.pruned_upto, fence, *flags)
        )
    except OffsetError as error:
        return error
    return None if gap is None else gap_error(offset.table, gap)
