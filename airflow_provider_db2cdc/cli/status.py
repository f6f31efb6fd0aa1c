"""`db2cdc status`: what is captured, how far capture and the target are, and what lies between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_db2cdc.cdc.backlog import Backlog
from airflow_provider_db2cdc.cdc.capture import CaptureInstance, Fence
from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.gap import find_gap
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.offset import Offset
from airflow_provider_db2cdc.cdc.progress import describe_parts
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.unmatched import unmatched_tables
from airflow_provider_db2cdc.cli.pipeline import kept_elsewhere, open_kept, open_source
from airflow_provider_db2cdc.cli.screen import clock, new_table, note, print_json, screen, span
from airflow_provider_db2cdc.config import PipelineConfig
from airflow_provider_db2cdc.config_file import load_config
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.source.catalog import read_capture
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.plan import gone_tables
from airflow_provider_db2cdc.sql.asn import COUNTED_AT_ONCE, count_changes

REPLACED = (
    "capture is another one than at its offset (registered anew, change table or source table created anew, or a cold "
    "start); the next tick says which"
)
WAS_INACTIVE = "its registration was not active for a while: the next tick tells whether changes are missing"
UNREGISTERED = "not registered any more: nobody captures what changes in it"
NEW, ELSEWHERE = "new: the next tick takes it up", "unknown: its offset is not in this file"


@dataclass(frozen=True)
class Standing:
    """Where one table stands: `pending` change rows lie between offset and fence, None where that has no answer."""

    table: TableId
    state: str
    update_as: str
    offset: Offset | None
    pending: int | None
    verdict: str


def run(config: Path, as_json: bool, airflow: bool = False) -> None:
    """Read and show where every chosen table stands; nothing is changed."""
    pipeline = load_config(config)
    store = open_kept(pipeline, airflow)
    with open_source(pipeline) as source:
        captured = read_capture(source, pipeline.asn_schema)
        chosen = pipeline.selection.tables(captured.instances)
        for one in unmatched_tables(pipeline.selection, pipeline.snapshot_include, captured.instances):
            note(f"warning: {one.problem}. {one.remedy}")
        instances = {table: captured.instances[table] for table in chosen}
        missing = ELSEWHERE if not airflow and kept_elsewhere(pipeline) else NEW
        offsets, backlog = store.all(), store.backlog()
        standings = _standings(source, instances, captured.fence, offsets, missing)
        gone = gone_tables(captured, pipeline, backlog)
        standings += [_unregistered(table, offsets.get(table)) for table in gone]
    if as_json:
        found = {"fence": captured.fence, "tables": standings, "snapshots": backlog.snapshots}
        print_json({"pipeline": pipeline.pipeline, **to_data(found), "signals": to_data(backlog.outcomes)})
    else:
        _show(pipeline, captured.fence, standings)
        _show_snapshots(backlog)


def _standings(
    source: Source,
    instances: Mapping[TableId, CaptureInstance],
    fence: Fence,
    offsets: Mapping[TableId, Offset],
    missing: str,
) -> list[Standing]:
    placed = {table: offset for table, offset in offsets.items() if offset.is_placed}
    gaps = {table: _gap(instance, placed[table], fence) for table, instance in instances.items() if table in placed}
    countable = [table for table, gap in gaps.items() if gap is None and instances[table].cd_columns]
    steps = [(instances[table], LsnRange(offsets[table].lsn, fence.lsn)) for table in countable]
    pending = dict(zip(countable, _counts(source, steps), strict=True))
    return [
        Standing(
            table,
            instance.state,
            instance.update_as,
            offsets.get(table),
            pending.get(table),
            _verdict(instance, offsets.get(table), gaps.get(table), pending.get(table), missing),
        )
        for table, instance in instances.items()
    ]


def _unregistered(table: TableId, offset: Offset | None) -> Standing:
    return Standing(table, "-", "-", offset, None, UNREGISTERED)


def _counts(source: Source, steps: Sequence[tuple[CaptureInstance, LsnRange]]) -> list[int]:
    counts: list[int] = []
    for start in range(0, len(steps), COUNTED_AT_ONCE):
        group = steps[start : start + COUNTED_AT_ONCE]
        found = dict(source.rows(count_changes(group)))
        counts += [int(found.get(place, 0)) for place in range(len(group))]
    return counts


def _gap(instance: CaptureInstance, offset: Offset, fence: Fence) -> str | None:
    now = instance.identity
    is_same = offset.capture in ("", now.digest)
    try:
        gap = find_gap(instance.table, offset.lsn, None, now, instance.floor, fence.lsn, offset.suspended)
    except OffsetError as error:
        return str(error)
    return gap or (None if is_same else REPLACED)


def _verdict(
    instance: CaptureInstance, offset: Offset | None, gap: str | None, pending: int | None, missing: str
) -> str:
    if not instance.active:
        return f"not captured (state {instance.state})"
    if offset is not None and offset.restart:
        return "begins anew with the next tick"
    if offset is None or not offset.is_placed:
        return WAS_INACTIVE if offset is not None and offset.suspended else missing
    if gap:
        return f"gap: {gap}"
    return f"{pending} change rows wait" if pending else "up to date"


def _show_snapshots(backlog: Backlog) -> None:
    """Show the snapshots of the last ticks, and what became of the newest signals."""
    if backlog.snapshots:
        shown = new_table("snapshot", "kind", "table", "status", "chunks", "rows", "left", "reason", title="snapshots")
        for snapshot in backlog.snapshots:
            left = span(snapshot.left_s)
            for *texts, reason in describe_parts(snapshot):
                shown.add_row(snapshot.id, snapshot.kind, *texts, left, reason)
        screen().print(shown)
    if backlog.outcomes:
        shown = new_table("signal", "channel", "outcome", "reason", title="signals")
        for outcome in backlog.outcomes:
            shown.add_row(outcome.id, outcome.channel, outcome.status, outcome.reason)
        screen().print(shown)


def _show(config: PipelineConfig, fence: Fence, standings: Sequence[Standing]) -> None:
    title = f"{config.pipeline}: capture stands at {fence.lsn}, {span(fence.age_s)} behind the source"
    shown = new_table(
        "table", "state", "updates", "offset", "batch", "newest commit (source's time)", "standing", title=title
    )
    for line in standings:
        offset = line.offset
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
