import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.cdc.offset.offset import Offset, check_forward, reconcile, restart_hint
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
