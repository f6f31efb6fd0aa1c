"""`db2cdc status`: shows what is captured, how far capture and the target are, and the changes in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.verdict import Verdict
from airflow_provider_db2cdc.cdc.selection.unmatched import unmatched_tables
from airflow_provider_db2cdc.cdc.snapshot.progress import describe_tables
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.pipeline import kept_elsewhere, open_kept, open_source
from airflow_provider_db2cdc.cli.screen import clock, new_table, note, print_json, screen, span
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.source.catalog import read_capture
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.planning.plan import gone_tables
from airflow_provider_db2cdc.source.preflight.offset_checks import read_verdicts
from airflow_provider_db2cdc.sql.asn import COUNTED_AT_ONCE, count_changes

WAS_INACTIVE = "its registration was not active for a while: the next tick checks whether changes are missing"
UNREGISTERED = "not registered any more: its changes are not captured"
MISSING = "its offset is missing: unless its target was removed too, the next tick stops it or restores the offset"
NEW, ELSEWHERE = "new: the next tick begins it", "unknown: its offset is not in this file"


@dataclass(frozen=True)
class TableStatus:
    """The status of one table.

    `pending` counts the change rows between its offset and the capture position. It is None if that is not known.
    """

    table: TableId
    state: str
    update_as: str
    offset: Offset | None
    pending: int | None
    verdict: str = ""


def run(config: Path, as_json: bool, airflow: bool = False) -> None:
    """Show the status of every chosen table. Nothing is changed."""
    pipeline = load_config(config)
    store = open_kept(pipeline, airflow)
    # Offsets are read first. A tick that ends meanwhile would otherwise leave an offset beyond the capture position.
    seen = store.read()
    offsets, summary = seen.all(), seen.summary()
    with open_source(pipeline) as source:
        captured = read_capture(source, pipeline.asn_schema)
        chosen = pipeline.selection.tables(captured.registrations)
        for entry in unmatched_tables(pipeline.selection, pipeline.snapshot_include, captured.registrations):
            note(f"warning: {entry.problem}. {entry.remedy}")
        captures = [captured.registrations[table] for table in chosen]
        verdicts = read_verdicts(source, pipeline, captures, offsets, summary)
        pending = _pending(source, captures, verdicts, captured.position, offsets)
    missing = ELSEWHERE if not airflow and kept_elsewhere(pipeline) else NEW
    standings = []
    for capture in captures:
        table, offset, rows = capture.table, offsets.get(capture.table), pending.get(capture.table)
        status = TableStatus(table, capture.state, capture.update_as, offset, rows)
        standings.append(replace(status, verdict=_verdict(status, verdicts[table], summary, missing)))
    gone = gone_tables(captured, pipeline, summary)
    standings += [_unregistered(table, offsets.get(table)) for table in gone]
    if as_json:
        data = {"capture_position": captured.position, "tables": standings, "snapshots": summary.snapshots}
        print_json({"pipeline": pipeline.pipeline, **to_data(data), "signals": to_data(summary.outcomes)})
    else:
        _show(pipeline, captured.position, standings)
        _show_snapshots(summary)


def _pending(
    source: Source,
    captures: Sequence[CaptureRegistration],
    verdicts: Mapping[TableId, Verdict],
    position: CapturePosition,
    offsets: Mapping[TableId, Offset],
) -> dict[TableId, int]:
    """Count the waiting change rows of each table whose changes the next tick reads."""
    ranges = [
        (capture, LsnRange(offsets[capture.table].lsn, position.lsn))
        for capture in captures
        if verdicts[capture.table].kind == "pulled"
        and capture.cd_columns
        and offsets[capture.table].lsn <= position.lsn
    ]
    return dict(zip([capture.table for capture, _ in ranges], _counts(source, ranges), strict=True))


def _unregistered(table: TableId, offset: Offset | None) -> TableStatus:
    return TableStatus(table, "-", "-", offset, None, UNREGISTERED)


def _counts(source: Source, ranges: Sequence[tuple[CaptureRegistration, LsnRange]]) -> list[int]:
    counts: list[int] = []
    for start in range(0, len(ranges), COUNTED_AT_ONCE):
        group = ranges[start : start + COUNTED_AT_ONCE]
        by_place = dict(source.rows(count_changes(group)))
        counts += [int(by_place.get(place, 0)) for place in range(len(group))]
    return counts


def _verdict(status: TableStatus, verdict: Verdict, summary: PipelineSummary, missing: str) -> str:
    table, offset = status.table, status.offset
    if status.state != "A":
        return f"not captured (state {status.state})"
    if offset is not None and offset.restart:
        return "begins again with the next tick"
    if verdict.kind == "restored":
        return "the next tick restores its offset from the target"
    if verdict.error is not None:
        problem = verdict.error.problem.removeprefix(f"{table}: ")
        return f"{'snapshotted again by the next tick' if verdict.kind == 'mended' else 'stopped'}: {problem}"
    failure = summary.failure(table)
    if failure is not None and not failure.is_rejected:
        return f"failed in the last tick: {failure.error.removeprefix(f'{table}: ')}"
    if verdict.kind == "idle":
        return "its changes are not read (snapshot.mode)"
    if verdict.kind == "begins":
        return _begins(table, offset, summary, missing)
    return f"{status.pending} change rows wait" if status.pending else "up to date"


def _begins(table: TableId, offset: Offset | None, summary: PipelineSummary, missing: str) -> str:
    if offset is not None and offset.capture_interrupted:
        return WAS_INACTIVE
    return MISSING if missing == NEW and summary.had_offset(table) else missing


def _show_snapshots(summary: PipelineSummary) -> None:
    """Show the snapshots of the last ticks, and the outcomes of the newest signals."""
    if summary.snapshots:
        shown = new_table("snapshot", "kind", "table", "status", "chunks", "rows", "left", "reason", title="snapshots")
        for snapshot in summary.snapshots:
            left = span(snapshot.remaining_s)
            for *texts, reason in describe_tables(snapshot):
                shown.add_row(snapshot.id, snapshot.kind, *texts, left, reason)
        screen().print(shown)
    if summary.outcomes:
        shown = new_table("signal", "channel", "outcome", "reason", title="signals")
        for outcome in summary.outcomes:
            shown.add_row(outcome.id, outcome.channel, outcome.status, outcome.reason)
        screen().print(shown)


def _show(config: PipelineConfig, position: CapturePosition, standings: Sequence[TableStatus]) -> None:
    title = f"{config.pipeline}: capture stands at {position.lsn}, {span(position.age_s)} behind the source"
    shown = new_table(
        "table", "state", "updates", "offset", "batch", "newest commit (source's time)", "standing", title=title
    )
    for line in standings:
        offset = line.offset if line.offset and line.offset.has_position else None
        shown.add_row(
            str(line.table),
            line.state,
            line.update_as,
            str(offset.lsn) if offset else "-",
            str(offset.batch) if offset else "-",
            clock(offset.commit_ts_ms if offset else None),
            line.verdict,
        )
    screen().print(shown)
