"""What a change log must hold: every event of the change table once, by the plain rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

from airflow_provider_db2cdc.cdc.event.change_event import Event, RowChange, events_of
from airflow_provider_db2cdc.cdc.event.net_effect import net_effects
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from support.pipeline import Pipeline

ORDER = ("__batch", "__commit_lsn", "__intent_lsn", "__ordinal")
"""The documented order of the change log."""


def captured_events(
    pipeline: Pipeline, table: TableId, key: tuple[str, ...], after: Lsn, images: bool = False
) -> Counter[Event]:
    """Return the events of the table's change rows after `after`, read from the change table itself.

    With `images` each of its columns is followed by its before image.
    """
    return events_behind(change_rows(pipeline, table, images), len(key), after, images)


def change_rows(pipeline: Pipeline, table: TableId, images: bool = False) -> list[tuple[Any, ...]]:
    """Return the rows of a table's change table. A row with both images becomes the two rows that it represents."""
    rows = pipeline.query(f'SELECT * FROM ASNCDC."CDC_{table.schema}_{table.name}"')
    return [half for row in rows for half in (_halves(row) if images else [row])]


def events_behind(rows: Iterable[tuple[Any, ...]], keys: int, after: Lsn, images: bool = False) -> Counter[Event]:
    """Return the events of change rows after `after`. The key has `keys` columns."""
    changes = [_change(row, keys) for row in rows]
    return Counter(events_of((change for change in changes if change.commit > after), one_row=images))


def logged_events(pipeline: Pipeline, table: TableId) -> Counter[Event]:
    """Return the change log's events of the source, without those of snapshots and without tombstones."""
    rows = pipeline.changes(table).where("op <> 'r' AND source.snapshot = 'false'").collect()
    return Counter(_event(row) for row in rows)


def reads(pipeline: Pipeline, table: TableId) -> Counter[tuple[Any, ...]]:
    """Return the keys of the change log's `r` events."""
    return Counter(tuple(row["key"]) for row in pipeline.changes(table).where("op = 'r'").collect())


def tombstones(pipeline: Pipeline, table: TableId) -> Counter[tuple[str, tuple[Any, ...]]]:
    """Return commit and key of the change log's tombstones. Each must follow a deletion of its key directly."""
    deleted, found = None, []
    for row in pipeline.changes(table).orderBy("key", *ORDER).collect():
        if row["op"] is None:
            assert deleted == _place(row), "a tombstone without its deletion"
            found.append((row["__commit_lsn"], tuple(row["key"])))
        deleted = (*_place(row)[:-1], row["__ordinal"] + 1) if row["op"] == "d" else None
    return Counter(found)


def folded(pipeline: Pipeline, table: TableId, upto: Lsn | None = None) -> set[tuple[Any, ...]]:
    """Return the rows of a reader that keeps each key's last event, of all events or of those up to a commit."""
    rows = pipeline.changes(table).select("key", "after", "__commit_lsn").collect()
    last = {row["key"]: row["after"] for row in rows if upto is None or row["__commit_lsn"] <= str(upto)}
    return {tuple(image) for image in last.values() if image is not None}


def rebuilt(pipeline: Pipeline, table: TableId) -> set[tuple[Any, ...]]:
    """Return the rows that the change log adds up to, by commit. A snapshot's events come after their commit."""
    rows = pipeline.changes(table).where("op IS NOT NULL").collect()
    held: dict[tuple[Any, ...], Any] = {}
    for commit in sorted({row["__commit_lsn"] for row in rows}):
        own = [row for row in rows if row["__commit_lsn"] == commit]
        effects = net_effects(_event(row) for row in own if row["source"]["snapshot"] == "false")
        held.update({cast("tuple[Any, ...]", key): effect.image for key, effect in effects.items()})
        for row in own:
            if row["source"]["snapshot"] != "false":
                held[tuple(row["key"])] = None if row["after"] is None else tuple(row["after"])
    return {image for image in held.values() if image is not None}


def check_log(pipeline: Pipeline, table: TableId) -> None:
    """Check that the log adds up and folds to the state, and that no `r` is older than its key's event before it."""
    seen: dict[tuple[Any, ...], str] = {}
    for row in pipeline.changes(table).where("op IS NOT NULL").collect():
        of, commit = tuple(row["key"]), row["__commit_lsn"]
        assert row["op"] != "r" or commit >= seen.get(of, ""), (of, commit, seen[of])
        seen[of] = max(commit, seen.get(of, ""))
    assert rebuilt(pipeline, table) == pipeline.rows(table)
    assert folded(pipeline, table) == pipeline.rows(table)


def _place(row: Any) -> tuple[Any, ...]:
    return (row["key"], *(row[name] for name in ORDER))


def _halves(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return what a change row with before images represents. An update is the old row's D and the new one's I."""
    (*place, op), new, old = row[:3], row[3::2], row[4::2]
    return [(*place, "D", *old), (*place, "I", *new)] if op == "U" else [(*place, op, *new)]


def _change(row: tuple[Any, ...], keys: int) -> RowChange:
    commit, intent, op, *image = row
    # In the order in which operation.create_table declares them.
    key = tuple(reversed(image[:keys]))
    return RowChange(Lsn(bytes(commit)), Lsn(bytes(intent)), op, key, tuple(image))


def _event(row: Any) -> Event:
    headers = row["headers"] or {"newkey": None, "oldkey": None}
    # Some events have moved in the log: `source` has their place in the change table.
    positions = (Lsn.parse(row["__commit_lsn"]), Lsn.parse(row["source"]["change_lsn"] or row["__intent_lsn"]))
    parts = [row["key"], row["before"], row["after"], headers["newkey"], headers["oldkey"]]
    key, before, after, newkey, oldkey = (None if part is None else tuple(part) for part in parts)
    return Event(*positions, row["op"], key, before, after, newkey, oldkey)


def events_beside(pipeline: Pipeline, table: TableId, snapshot: str) -> int:
    """Return how many events of the source the batches of a snapshot brought."""
    commits = pipeline.spark.read.format("delta").load(Layout(pipeline.target).internal("commits").name)
    batches = commits.where(commits.snapshot == snapshot).select(commits.batch.alias("__batch")).distinct()
    return pipeline.changes(table).where("op IN ('c', 'u', 'd')").join(batches, "__batch").count()
