"""The documents of offsets and requests as a store keeps them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import (
    RemoveOffset,
    Requests,
    Restart,
    Restore,
    SetOffset,
    TableRequests,
)
from airflow_provider_db2cdc.cdc.offset.stored import StoredOffsets, entry_name, tables_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError

TABLE = TableId("S", "T")
L1, L2 = (Lsn(bytes(15) + bytes([at])) for at in (1, 2))
OFFSET = Offset(
    TABLE,
    L2,
    7,
    1_700_000_000_000,
    "digest",
    planned_at_ms=1_700_000_001_000,
    capture_interrupted=True,
    revision="m",
    source_restored=True,
    committed_lsn=L1,
    commit_lsn=L1,
    announced=Announcement("id", 5, 7, None, L2, 3, 9, is_confirmed=True),
)

lsns = st.binary(min_size=16, max_size=16).map(Lsn)
names = st.text(min_size=1)
tables = st.builds(TableId, names, names)
marks = st.booleans()
offsets = st.builds(
    Offset,
    tables,
    lsns,
    st.integers(),
    st.none() | st.integers(),
    st.text(),
    planned_at_ms=st.integers(),
    capture_interrupted=marks,
    revision=st.text(),
    source_restored=marks,
    committed_lsn=st.none() | lsns,
    commit_lsn=st.none() | lsns,
)
revisions = st.from_regex(r"[0-9a-f]{1,12}", fullmatch=True)
asked = (
    st.builds(Restart, revisions)
    | st.builds(Restore, revisions)
    | st.builds(RemoveOffset, revisions)
    | st.builds(SetOffset, revisions, lsns, st.integers(), st.none() | st.integers())
)
entries = st.builds(TableRequests, st.none() | asked, st.just("") | revisions, st.just("") | revisions)


@given(st.lists(offsets, unique_by=lambda offset: offset.table))
def test_offsets_read_back_from_their_document(given_offsets: list[Offset]) -> None:
    moved = {offset.table: offset for offset in given_offsets}
    stored = StoredOffsets.parse(StoredOffsets("here").updated(moved).to_text(), "here")
    assert {table: stored.get(table) for table in stored.tables} == moved


@given(st.dictionaries(tables, entries))
def test_requests_read_back_from_their_document(given_entries: dict[TableId, TableRequests]) -> None:
    requests = Requests.parse(Requests("here").updated(given_entries).to_text(), "here")
    wanted = {table: entry for table, entry in given_entries.items() if entry != TableRequests()}
    assert {table: requests.entry(table) for table in requests.tables} == wanted


@given(tables)
def test_name_of_an_entry_names_its_table(table: TableId) -> None:
    assert tables_of({entry_name(table): {}}) == [table]


@pytest.mark.parametrize(
    ("table", "name"),
    [(TABLE, "S.T"), (TableId("S$1", "T_#@2"), "S$1.T_#@2"), (TableId("S", "a.b"), '"S"."a.b"')],
    ids=str,
)
def test_usual_names_are_written_without_quotes(table: TableId, name: str) -> None:
    assert entry_name(table) == name


def test_entry_has_only_what_differs_from_its_default() -> None:
    document = json.loads(StoredOffsets("here").updated({TABLE: Offset(TABLE, L2, 7)}).to_text())
    assert document == {"version": 1, "tables": {"S.T": {"lsn": str(L2), "batch": 7}}}
    document = json.loads(StoredOffsets("here").updated({TABLE: OFFSET}).to_text())
    assert document["tables"]["S.T"] == {
        "lsn": str(L2),
        "batch": 7,
        "commit_ts_ms": 1_700_000_000_000,
        "capture": "digest",
        "revision": "m",
        "planned_at_ms": 1_700_000_001_000,
        "capture_interrupted": True,
        "source_restored": True,
        "committed_lsn": str(L1),
        "commit_lsn": str(L1),
        "announced": {
            "log_id": "id",
            "from_batch": 5,
            "to_batch": 7,
            "from_lsn": None,
            "to_lsn": str(L2),
            "rows": 3,
            "commit_ts_ms": 9,
            "is_confirmed": True,
        },
    }


@pytest.mark.parametrize(
    "entry",
    [
        5,
        [],
        "",
        {},
        {"lsn": str(L2)},
        {"lsn": "zz", "batch": 7},
        {"lsn": 5, "batch": 7},
        {"lsn": str(L2), "batch": "7"},
        {"lsn": str(L2), "batch": True},
        {"lsn": str(L2), "batch": 7, "surprise": 1},
        {"lsn": str(L2), "batch": 7, "restart": True},
    ],
    ids=str,
)
def test_damaged_entry_is_refused_with_its_place_and_a_remedy(entry: object) -> None:
    stored = StoredOffsets.parse(json.dumps({"version": 1, "tables": {"S.T": entry}}), "the Variable V")
    with pytest.raises(OffsetError) as raised:
        stored.get(TABLE)
    assert "the offset of S.T kept in the Variable V cannot be read" in raised.value.problem
    assert "`db2cdc offset restore S.T`" in raised.value.remedy


def test_a_name_of_no_table_stays() -> None:
    text = json.dumps({"version": 1, "tables": {"a note": 5, "S.T": {"lsn": str(L2), "batch": 7}}})
    stored = StoredOffsets.parse(text, "here")
    assert stored.tables == [TABLE]
    assert json.loads(stored.updated({TABLE: OFFSET}).to_text())["tables"]["a note"] == 5
