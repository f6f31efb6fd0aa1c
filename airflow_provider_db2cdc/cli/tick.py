"""`db2cdc tick`: plans, applies and commits like the DAG, in one process with a Spark of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from airflow_provider_db2cdc.cdc.capture.interval import PROPERTY as END_AT
from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.document import PROGRESS_MARK
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.channels import notifier
from airflow_provider_db2cdc.channels.channel import acknowledge_channels, read_channels
from airflow_provider_db2cdc.cli.pipeline import login, open_source, open_store
from airflow_provider_db2cdc.cli.screen import (
    Text,
    clock,
    new_table,
    note,
    noted,
    print_json,
    screen,
    span,
    tell_ignored,
    working,
)
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.offsets.commit import (
    commit_tick,
    raise_for_failures,
    record_reported,
    record_signals_in_flight,
)
from airflow_provider_db2cdc.offsets.repetition import Repetition
from airflow_provider_db2cdc.source.planning.plan import IdleTick, TickRun, plan_or_reason
from airflow_provider_db2cdc.submit.child import OnLine
from airflow_provider_db2cdc.submit.handover import Following
from airflow_provider_db2cdc.submit.runner import run_job

COLOURS = {"applied": "green", "unchanged": "dim", "failed": "red"}


def run(config: Path, as_json: bool, progress: bool, interval_end: str | None) -> None:
    """Run one tick, or as many as `tick.repeat.s` asks for. `call` takes what a command returns for its exit code."""
    carry(config, as_json, progress, interval_end=interval_end)


def carry(
    config: Path, as_json: bool, progress: bool, signals: Sequence[Signal] = (), interval_end: str | None = None
) -> JobResult | None:
    """Run one tick with the signals of a command, and show its result. Return None if there is nothing to do.

    With `interval_end` its changes end at that time. Without that and without signals, further ticks follow for
    `tick.repeat.s`. The result of the last one is returned.

    :raises ConfigurationError: when `interval_end` is not a time with a zone.
    :raises CaptureBehindError: when capture has not passed `interval_end`.
    :raises OffsetCommitError: when some offsets could not be stored. Everything else is stored and shown.
    :raises TickFailedError: when some tables failed. The others are committed and shown.
    """
    pipeline = load_config(config)
    tell_ignored(pipeline.ignored)
    for warning in pipeline.warnings:
        note(f"warning: {warning}")
    started = time.monotonic()
    interval = None if interval_end is None else _interval(interval_end)
    if interval is None and pipeline.end_at == "interval":
        note(f"{END_AT} is interval, and there is no --interval-end: only snapshots are carried")
    planned = _plan(pipeline, signals, interval)
    if isinstance(planned, IdleTick):
        _show_idle(as_json, planned.reason)
        return None
    ticks, following = _Ticks(pipeline, as_json, started), None
    if pipeline.repeat_s and interval is None and not signals:
        following = Repetition(ticks.plan, ticks.commit, started + pipeline.repeat_s).following
    result = _apply(pipeline, planned, progress, following)
    if result != ticks.committed:
        ticks.commit(result)
    return result


class _Ticks:
    """The ticks of one command. `committed` is the result that was committed last."""

    def __init__(self, pipeline: PipelineConfig, as_json: bool, started: float) -> None:
        self._pipeline = pipeline
        self._as_json = as_json
        self._started = started
        self.committed: JobResult | None = None

    def plan(self) -> JobSpec | None:
        """Plan the next tick, or return None if there is nothing to do."""
        self._started = time.monotonic()
        planned = _plan(self._pipeline, (), None)
        return planned if isinstance(planned, JobSpec) else None

    def commit(self, result: JobResult) -> bool:
        """Commit a result and show it. See `commit` for the errors."""
        commit(self._pipeline, result, self._as_json, self._started)
        self.committed = result
        return True


def commit(pipeline: PipelineConfig, result: JobResult, as_json: bool, started: float) -> None:
    """Commit the job's result, and show it. `started` is the monotonic clock at the tick's start, in seconds.

    :raises OffsetCommitError: when some offsets could not be stored.
    :raises TickFailedError: when some tables failed.
    """
    before = open_store(pipeline).summary()
    moved, unkept = commit_tick(result, open_store(pipeline))
    if unkept is not None:
        note(f"offsets were not kept, the tick continues: {', '.join(sorted(unkept.tables))}")
    acknowledge_channels(pipeline, result.signals)
    with noted(notifier.__name__):
        is_notified = notifier.notify(pipeline, result.notifications, time.time_ns() // 1_000_000)
    _show_failed_signals(before, result)
    record_reported(result, open_store(pipeline), is_notified)
    if as_json:
        status = "failed" if result.failed or unkept is not None else "applied"
        unkept_tables = [] if unkept is None else sorted(unkept.tables)
        print_json({"status": status, **to_data(result), "moved": to_data(moved), "unkept": unkept_tables})
    else:
        _show(result, moved, time.monotonic() - started)
    if unkept is not None and result.failed:
        note(str(unkept))
    raise_for_failures(result)
    if unkept is not None:
        raise unkept


def _interval(text: str) -> DataInterval:
    mistake = ConfigurationError(
        f"--interval-end is {text!r}", "Give an ISO time with its zone, such as 2026-01-01T00:00:00Z."
    )
    try:
        end = datetime.fromisoformat(text)
    except ValueError as error:
        raise mistake from error
    if end.tzinfo is None:
        raise mistake
    return DataInterval.of(None, end)


def _plan(config: PipelineConfig, given: Sequence[Signal], interval: DataInterval | None) -> JobSpec | IdleTick:
    now = datetime.now(UTC)
    notifier.check_notifiers(config)
    signals = [*given, *read_channels(config)]
    offsets, run_id, at_ms = open_store(config), f"cli__{now.isoformat()}", int(now.timestamp() * 1000)
    with open_source(config) as source:
        planned = plan_or_reason(source, config, offsets, TickRun(run_id, at_ms, signals, interval))
    if isinstance(planned, JobSpec):
        record_signals_in_flight(planned, offsets)
    return planned


def _apply(
    config: PipelineConfig, spec: JobSpec, progress: bool, following: Following[JobResult] | None = None
) -> JobResult:
    rows = sum(table.rows for table in spec.tables)
    with spark_output(f"{len(spec.tables)} tables, {rows} change rows", progress) as on_line:
        return run_job(spec, config.spark, login(config), on_line, following)


@contextmanager
def spark_output(work: str, progress: bool) -> Iterator[OnLine]:
    """Yield the function for each line of Spark's output. `work` says what Spark starts for.

    With `progress` it prints the line. Otherwise a spinner shows the last line of the job itself.
    """
    if progress:
        yield note
        return
    with working(f"Spark starts: {work}") as show:

        def on_line(line: str) -> None:
            if line.startswith(PROGRESS_MARK):
                show(line.removeprefix(PROGRESS_MARK))

        yield on_line


def _show_idle(as_json: bool, reason: str) -> None:
    if as_json:
        print_json({"status": "idle", "reason": reason})
    else:
        note(f"idle: {reason}")


def _show_failed_signals(before: PipelineSummary, result: JobResult) -> None:
    for signal in before.new_failures(result):
        note(f"signal {signal.id} of channel {signal.channel} {signal.status}: {signal.reason}")


def _show(result: JobResult, moved: Sequence[Offset], taken_s: float) -> None:
    names = ("table", "", "created", "updated", "deleted", "read", "rows", "newest commit (source's time)")
    shown = new_table(*names, title=f"{result.pipeline}: {len(moved)} offsets moved in {span(taken_s)}")
    for line in result.tables:
        shown.add_row(*_row(line))
    screen().print(shown)


def _row(line: TableResult) -> list[str | Text]:
    counts = (line.creates, line.updates, line.deletes, line.reads)
    return [
        str(line.table),
        Text(line.status, COLOURS[line.status]),
        *(str(count) if count else "" for count in counts),
        "" if line.rows is None else str(line.rows),
        clock(line.commit_ts_ms),
    ]
