"""Signals that change offsets: the plan of the run that carries them acts on them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.memory_pipeline import MemoryPipeline, filled
from support.request import execute

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import TableFailure
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.offsets.signal import act_on_offset_signals

A, B = TableId("S", "A"), TableId("S", "B")


def sent(type_: str, data: dict[str, object], id_: str = "1") -> Signal:
    return Signal(id_, type_, json.dumps(data), "airflow")


@pytest.fixture
def pipeline() -> MemoryPipeline:
    pipeline = filled(A, B, rows=2)
    pipeline.passed()
    pipeline.change(A, 0, 5)
    pipeline.passed()
    return pipeline


def requested(pipeline: MemoryPipeline) -> list[tuple[bool, bool]]:
    """Return which requests the offsets of both tables have: a restart, a restore."""
    offsets = [pipeline.offsets.all()[table] for table in (A, B)]
    return [(offset.restart, offset.restore) for offset in offsets]


def ended(pipeline: MemoryPipeline) -> list[tuple[str, str]]:
    return [(outcome.id, outcome.status) for outcome in pipeline.offsets.summary().outcomes]


def test_patterns_name_the_tables_and_other_signals_are_acted_on(pipeline: MemoryPipeline) -> None:
    other = execute("ask", A)
    signals = [sent("restart-table", {"data-collections": ["s\\..*"]}), other]
    assert act_on_offset_signals(signals, pipeline.offsets) == [other]
    assert requested(pipeline) == [(True, False), (True, False)]
    [outcome] = pipeline.offsets.summary().outcomes
    assert (outcome.id, outcome.channel, outcome.status) == ("1", "airflow", "done")
    assert f"{A}: the next tick snapshots it again" in outcome.reason
    pipeline.finish()
    assert pipeline.reads(A) == pipeline.reads(B) == dict.fromkeys(range(2), 2)
    assert ended(pipeline) == [("1", "done")], "a tick leaves the outcome"


@pytest.mark.parametrize(
    "other",
    [
        sent("restart-table", {"data-collections": ["S.A", "S.B"]}),
        sent("restore-offset", {"data-collections": ["S.A"]}),
    ],
    ids=["more tables", "another type"],
)
def test_another_signal_under_a_used_id_is_refused(pipeline: MemoryPipeline, other: Signal) -> None:
    first = sent("restart-table", {"data-collections": ["S.A"]})
    act_on_offset_signals([first], pipeline.offsets)
    pipeline.finish()
    with pytest.raises(SignalError, match="'1' asked for something else before"):
        act_on_offset_signals([other], pipeline.offsets)
    assert ended(pipeline) == [("1", "done"), (other.id_again, "refused")]
    act_on_offset_signals([first], pipeline.offsets)
    assert requested(pipeline) == [(False, False)] * 2, "the first one is still done"


def test_retry_requests_nothing_again_though_a_tick_has_acted(pipeline: MemoryPipeline) -> None:
    data: dict[str, object] = {"data-collections": ["S.A"]}
    signal, offsets = sent("restart-table", data), pipeline.offsets
    act_on_offset_signals([signal], offsets)
    pipeline.finish()
    # As if the first try had died before it kept the outcome.
    offsets.put_summary(replace(offsets.summary(), outcomes=()))
    act_on_offset_signals([replace(signal)], offsets)
    assert requested(pipeline) == [(False, False), (False, False)]
    offsets.put(replace(offsets.all()[A], revision="a finding since then"))
    act_on_offset_signals([signal], offsets)
    assert requested(pipeline) == [(False, False), (False, False)]
    act_on_offset_signals([sent("restart-table", data, "2")], offsets)
    assert requested(pipeline) == [(True, False), (False, False)]


def test_all_failed_tables_are_restored(pipeline: MemoryPipeline) -> None:
    offsets = pipeline.offsets
    offsets.lose(A)
    assert "its offset is missing" in pipeline.failure(A)
    act_on_offset_signals([sent("restore-offset", {"all-failed": True})], offsets)
    assert requested(pipeline) == [(False, True), (False, False)]
    pipeline.finish()
    act_on_offset_signals([sent("restart-table", {"all-failed": True}, "2")], offsets)
    assert requested(pipeline) == [(False, False), (False, False)]
    assert offsets.summary().outcomes[-1].reason == "no table failed in the last tick"


@pytest.mark.parametrize(
    ("data", "words"),
    [({"data-collections": ["S.A", "S.TYPO"]}, "'S.TYPO' matches no table"), ({}, "names no data-collections")],
    ids=str,
)
def test_refused_request_keeps_nothing_but_its_outcome(
    pipeline: MemoryPipeline, data: dict[str, object], words: str
) -> None:
    signal = sent("restart-table", data)
    for _ in range(2):
        with pytest.raises(SignalError, match=words):
            act_on_offset_signals([signal], pipeline.offsets)
        assert requested(pipeline) == [(False, False), (False, False)]
        assert ended(pipeline) == [("1", "refused")]


def test_failed_table_without_an_offset_gets_its_request(pipeline: MemoryPipeline) -> None:
    """Its first batch failed."""
    summary = pipeline.offsets.summary()
    pipeline.offsets.put_summary(replace(summary, failures=(TableFailure(A, "its first batch failed"),)))
    pipeline.offsets.lose(A)
    act_on_offset_signals([sent("restart-table", {"all-failed": True})], pipeline.offsets)
    offset = pipeline.offsets.all()[A]
    assert replace(offset, revision="") == Offset(A, offset.lsn, 0, restart=True)
    assert not offset.has_position
