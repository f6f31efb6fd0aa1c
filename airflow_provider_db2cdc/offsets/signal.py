"""Signals that change offsets. The plan acts on them before it reads the offsets, so its own tick does the work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from airflow_provider_db2cdc.cdc.offset.offset import MARK_CHARS, new_revision
from airflow_provider_db2cdc.cdc.offset.request import Requests
from airflow_provider_db2cdc.cdc.offset.request_change import (
    describe_requests,
    find_failed,
    nothing_failed,
    with_requests,
)
from airflow_provider_db2cdc.cdc.offset.store import RequestStore
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.selection.table_names import match_tables
from airflow_provider_db2cdc.cdc.signal.action import OFFSET_ACTIONS
from airflow_provider_db2cdc.cdc.signal.request import ChangeOffsets, parse
from airflow_provider_db2cdc.cdc.signal.signal import MAX_REASON, Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import Db2CdcError, SignalError

log = logging.getLogger(__name__)


def act_on_offset_signals(signals: Sequence[Signal], offsets: RequestStore) -> list[Signal]:
    """Keep the requests of signals that change offsets, and return the other signals.

    The outcome of each is kept in the same write. A retry of the plan, and a cleared one, request nothing again.

    :raises Db2CdcError: when a request is refused. Its outcome is kept before.
    """
    for signal in signals:
        if signal.type in OFFSET_ACTIONS:
            _act(signal, offsets)
    return [signal for signal in signals if signal.type not in OFFSET_ACTIONS]


def _is_done(summary: PipelineSummary, signal: Signal) -> bool:
    return signal.is_answered(_done(summary, signal))


def _done(summary: PipelineSummary, signal: Signal) -> list[SignalOutcome]:
    return [outcome for outcome in summary.outcomes if (outcome.channel, outcome.status) == (signal.channel, "done")]


def _act(signal: Signal, offsets: RequestStore) -> None:
    seen, revision = offsets.read(), new_revision()
    if _is_done(seen.summary(), signal):
        return
    is_used = any(outcome.id == signal.id for outcome in _done(seen.summary(), signal))
    try:
        if is_used:
            raise SignalError(f"a signal {signal.id!r} asked for something else before", "Give each signal its own id.")
        tables, lines = _requested(signal, seen, offsets.where)
    except Db2CdcError as error:
        id_ = signal.id_again if is_used else signal.id
        refused = SignalOutcome(id_, signal.channel, "refused", str(error), signal.asked)
        offsets.put_requests(lambda seen: _with_outcome(refused, seen, revision))
        raise
    for line in lines:
        log.info("signal %s: %s", signal.id, line)
    done = SignalOutcome(signal.id, signal.channel, "done", "; ".join(lines), signal.asked)
    # A retry has the same revision, so it recognises what the first try has kept.
    own = sha256(signal.id.encode()).hexdigest()[:MARK_CHARS]

    def change(seen: PipelineOffsets) -> Requests:
        asked = with_requests(_order(signal).action, tables, seen, own)
        return replace(asked, plan=_with_outcome(done, seen, revision).plan)

    offsets.put_requests(change)


def _order(signal: Signal) -> ChangeOffsets:
    request = parse(signal)
    assert isinstance(request, ChangeOffsets)
    return request


def _requested(signal: Signal, offsets: PipelineOffsets, where: str) -> tuple[list[TableId], list[str]]:
    """Return the tables that a signal means, and a line for each of them."""
    request = _order(signal)
    known = offsets.summary().tables
    named = [table for pattern in request.collections for table in match_tables(pattern, known)]
    failed = find_failed(request.action, offsets) if request.all_failed else []
    tables = [*dict.fromkeys([*named, *failed])]
    lines = describe_requests(request.action, tables, offsets, where)
    return tables, lines or [nothing_failed(request.action)]


def _with_outcome(outcome: SignalOutcome, offsets: PipelineOffsets, revision: str) -> Requests:
    kept = replace(outcome, reason=outcome.reason[:MAX_REASON])
    recorded = offsets.recorded(revision)
    others = [known for known in recorded.plan.outcomes if (known.channel, known.id) != (kept.channel, kept.id)]
    return replace(recorded, plan=replace(recorded.plan, outcomes=(*others, kept)))
