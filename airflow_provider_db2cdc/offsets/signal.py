"""Signals that change offsets. The plan acts on them before it reads the offsets, so its own tick does the work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from airflow_provider_db2cdc.cdc.offset.offset import MARK_CHARS
from airflow_provider_db2cdc.cdc.offset.request import RepairableOffsets, find_failed, keep_requests, nothing_failed
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import match_tables
from airflow_provider_db2cdc.cdc.signal.action import OFFSET_ACTIONS
from airflow_provider_db2cdc.cdc.signal.request import ChangeOffsets, parse
from airflow_provider_db2cdc.cdc.signal.signal import MAX_REASON, Signal, SignalOutcome
from airflow_provider_db2cdc.errors import Db2CdcError

log = logging.getLogger(__name__)


def act_on_offset_signals(signals: Sequence[Signal], offsets: RepairableOffsets) -> list[Signal]:
    """Keep the requests of signals that change offsets, and return the other signals.

    The summary gets the outcome of each. A retry of the plan, and a cleared one, request nothing again.

    :raises Db2CdcError: when a request is refused. Its outcome is kept before.
    """
    for signal in signals:
        if signal.type in OFFSET_ACTIONS and not _is_done(offsets.summary(), signal):
            _act(signal, offsets)
    return [signal for signal in signals if signal.type not in OFFSET_ACTIONS]


def _is_done(summary: PipelineSummary, signal: Signal) -> bool:
    done = [outcome for outcome in summary.outcomes if (outcome.channel, outcome.status) == (signal.channel, "done")]
    return signal.is_answered(done)


def _act(signal: Signal, offsets: RepairableOffsets) -> None:
    try:
        lines = _requested(signal, offsets)
    except Db2CdcError as error:
        _record(SignalOutcome(signal.id, signal.channel, "refused", str(error), signal.asked), offsets)
        raise
    for line in lines:
        log.info("signal %s: %s", signal.id, line)
    _record(SignalOutcome(signal.id, signal.channel, "done", "; ".join(lines), signal.asked), offsets)


def _requested(signal: Signal, offsets: RepairableOffsets) -> list[str]:
    request = parse(signal)
    assert isinstance(request, ChangeOffsets)
    known = offsets.summary().tables
    named = [table for pattern in request.collections for table in match_tables(pattern, known)]
    failed = find_failed(request.action, offsets) if request.all_failed else []
    # A retry has the same revision, so it recognises what the first try has kept.
    revision = sha256(signal.id.encode()).hexdigest()[:MARK_CHARS]
    lines = keep_requests(request.action, dict.fromkeys([*named, *failed]), offsets, revision)
    return lines or [nothing_failed(request.action)]


def _record(outcome: SignalOutcome, offsets: RepairableOffsets) -> None:
    summary, name = offsets.summary(), (outcome.channel, outcome.id)
    others = [known for known in summary.outcomes if (known.channel, known.id) != name]
    kept = replace(outcome, reason=outcome.reason[:MAX_REASON])
    offsets.put_summary(replace(summary, outcomes=(*others, kept)))
