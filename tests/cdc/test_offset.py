import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.cdc.offset.offset import VERSION, Offset, check_forward, reconcile, restart_hint
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError

TABLE = TableId("S", "T")
L1, L2, L3 = (Lsn(bytes(15) + bytes([at])) for at in (1, 2, 3))
SHORT = Lsn(bytes(10))
OFFSET = Offset(
    TABLE,
    L2,
    7,
    1_700_000_000_000,
    "digest",
    restart=True,
    planned_at_ms=1_700_000_001_000,
    capture_interrupted=True,
    revision="m",
    source_restored=True,
    committed_lsn=L1,
    commit_lsn=L1,
    announced=Announcement("id", 5, 7, None, L2, 3, 9, is_confirmed=True),
    restore=True,
)

lsns = st.binary(min_size=16, max_size=16).map(Lsn)
numbers = st.none() | st.integers()
tables = st.builds(TableId, st.text(), st.text())
offsets = st.builds(Offset, tables, lsns, st.integers(), numbers, st.text(), st.booleans())


@given(offsets)
def test_an_offset_reads_back_from_its_document(offset: Offset) -> None:
    assert Offset.from_json(offset.to_json(), "here") == offset


def test_the_document_is_readable_and_stable() -> None:
    assert json.loads(OFFSET.to_json()) == {
        "table": {"schema": "S", "name": "T"},
        "lsn": "00000000:00000000:0000000000000002",
        "batch": 7,
        "commit_ts_ms": 1_700_000_000_000,
        "capture": "digest",
        "restart": True,
        "restore": True,
        "revision": "m",
        "planned_at_ms": 1_700_000_001_000,
        "capture_interrupted": True,
        "source_restored": True,
        "committed_lsn": "00000000:00000000:0000000000000001",
        "commit_lsn": "00000000:00000000:0000000000000001",
        "announced": {
            "log_id": "id",
            "from_batch": 5,
            "to_batch": 7,
            "from_lsn": None,
            "to_lsn": "00000000:00000000:0000000000000002",
            "rows": 3,
            "commit_ts_ms": 9,
            "is_confirmed": True,
        },
        "version": VERSION,
    }
    assert OFFSET.to_json() == Offset.from_json(OFFSET.to_json(), "here").to_json()


def test_a_handwritten_document_needs_only_table_lsn_and_batch() -> None:
    text = json.dumps({"table": {"schema": "S", "name": "T"}, "lsn": str(L2), "batch": 7})
    assert Offset.from_json(text, "here") == Offset(TABLE, L2, 7)


def document(**changes: str | int | None) -> str:
    return json.dumps(json.loads(OFFSET.to_json()) | changes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "null",
        "[]",
        "{}",
        '"00000000:00000000:0000000000000002"',
        document(lsn="zz"),
        document(lsn=5),
        document(lsn=None),
        document(batch="7"),
        document(batch=True),
        document(surprise=1),
        document(table="S.T"),
        document(version=2),
        document(version="1"),
    ],
)
def test_a_damaged_document_is_refused_with_its_place_and_a_remedy(text: str) -> None:
    with pytest.raises(OffsetError) as raised:
        Offset.from_json(text, "Variable db2cdc.sales.S.T")
    assert "Variable db2cdc.sales.S.T cannot be read" in raised.value.problem
    assert "`db2cdc offset restore TABLE`" in raised.value.remedy


@pytest.mark.parametrize("old", [None, Offset(TABLE, L1, 1), Offset(TABLE, L2, 1)], ids=["none", "before", "same"])
def test_an_offset_moves_forward_or_stays(old: Offset | None) -> None:
    check_forward(old, OFFSET)


def test_an_offset_moves_back_only_if_an_operator_requested_it() -> None:
    check_forward(Offset(TABLE, L3, 1, restart=True), OFFSET)
    check_forward(Offset(TABLE, L3, 1, restore=True), OFFSET)


def test_an_offset_never_moves_back() -> None:
    with pytest.raises(OffsetError, match=rf"S\.T: the offset would move back from {L3} to {L2}"):
        check_forward(Offset(TABLE, L3, 1), OFFSET)


MISSING, AHEAD, EMPTY = "its offset is missing", "is ahead of the target", "holds nothing of this table"
CASES = {
    "new to both": (None, None, False, None),
    "equal": (L2, L2, True, L2),
    "store behind by a crash": (L1, L2, True, L2),
    "none was ever stored": (None, L2, False, L2),
    "store lost it": (None, L2, True, MISSING),
    "store ahead": (L3, L2, True, AHEAD),
    "store ahead of a first batch": (L3, L2, False, AHEAD),
    "target gone": (L2, None, False, EMPTY),
    "another width": (SHORT, L2, True, "cannot be compared"),
}


@pytest.mark.parametrize(("stored", "committed", "has_offset", "outcome"), CASES.values(), ids=CASES.keys())
def test_reconciling_gives_the_committed_position_or_an_error(
    stored: Lsn | None, committed: Lsn | None, has_offset: bool, outcome: Lsn | str | None
) -> None:
    if not isinstance(outcome, str):
        assert reconcile(TABLE, stored, committed, has_offset) == outcome
        return
    with pytest.raises(OffsetError, match=outcome) as raised:
        reconcile(TABLE, stored, committed, has_offset)
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("stored", "committed", "remedy"),
    [
        (None, L2, "`db2cdc offset restore S.T`"),
        (None, L2, "`db2cdc offset restart S.T`"),
        (L3, L2, "`db2cdc offset restore S.T`"),
        (L3, L2, "the form's action 'Restore a lost offset'"),
        (L3, None, "the form's action 'Restart a table'"),
        (L3, None, "db2cdc offset restart S.T"),
    ],
)
def test_the_remedy_names_command_and_form(stored: Lsn | None, committed: Lsn | None, remedy: str) -> None:
    with pytest.raises(OffsetError) as raised:
        reconcile(TABLE, stored, committed, has_offset=True)
    assert remedy in raised.value.remedy


@given(st.none() | lsns, st.none() | lsns, st.booleans())
def test_reconciling_only_returns_the_committed_position(
    stored: Lsn | None, committed: Lsn | None, has_offset: bool
) -> None:
    try:
        assert reconcile(TABLE, stored, committed, has_offset) == committed
    except OffsetError:
        assert stored is None or committed is None or committed < stored


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        TableId("my schema", "T"),
        TableId("S", "a.b"),
        TableId("S", 'a"b'),
        TableId("S", "it's"),
        TableId("S$", "T"),
    ],
    ids=str,
)
def test_a_shell_takes_the_command_of_a_remedy_for_that_table(table: TableId) -> None:
    words = shlex.split(restart_hint(table).split("`")[1])
    assert words[:3] == ["db2cdc", "offset", "restart"]
    assert [parse_table(word, "table") for word in words[3:]] == [table]
