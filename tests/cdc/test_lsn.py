import re
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.lsn import WIDTHS, Lsn, LsnRange, synchpoint_of
from airflow_provider_db2cdc.errors import OffsetError

wide = st.binary(min_size=16, max_size=16).map(Lsn)
any_width = st.sampled_from(WIDTHS).flatmap(lambda width: st.binary(min_size=width, max_size=width)).map(Lsn)
lsn_pair = {width: st.tuples(*[st.binary(min_size=width, max_size=width).map(Lsn)] * 2) for width in WIDTHS}
pairs = st.sampled_from(WIDTHS).flatmap(lsn_pair.__getitem__)

A, B, C = (Lsn(bytes(15) + bytes([at])) for at in (1, 2, 3))
SHORT = Lsn(bytes(10))


@given(pairs)
def test_lsns_of_equal_width_sort_as_their_texts_and_bytes(pair: tuple[Lsn, Lsn]) -> None:
    one, other = pair
    assert (one < other) == (str(one) < str(other)) == (one.raw < other.raw)
    assert (one > other) == (str(one) > str(other))
    assert (one <= other) == (str(one) <= str(other))
    assert (one >= other) == (str(one) >= str(other))
    assert (one == other) == (str(one) == str(other))


@given(any_width)
def test_text_and_hex_read_back_as_the_same_lsn(lsn: Lsn) -> None:
    assert Lsn.parse(str(lsn)) == Lsn.parse(lsn.hex) == Lsn.parse(str(lsn).upper()) == lsn


@given(any_width)
def test_text_is_lower_case_hex_in_debeziums_groups(lsn: Lsn) -> None:
    assert re.fullmatch(r"[0-9a-f]{8}:[0-9a-f]{8}:([0-9a-f]{16}|[0-9a-f]{4})", str(lsn))
    assert re.fullmatch(r"[0-9A-F]+", lsn.hex)


def test_text_of_a_real_commitseq() -> None:
    lsn = Lsn.parse("00000000:0000150f:0000000000048fca")
    assert lsn.raw == bytes.fromhex("000000000000150f0000000000048fca")
    assert str(lsn) == "00000000:0000150f:0000000000048fca"
    assert lsn.hex == "000000000000150F0000000000048FCA"


def test_lsns_compare_as_unsigned_bytes() -> None:
    assert Lsn(b"\x7f" + bytes(15)) < Lsn(b"\x80" + bytes(15)) < Lsn(b"\xff" * 16)


@pytest.mark.parametrize("compare", ["__lt__", "__le__", "__gt__", "__ge__"])
def test_two_widths_are_refused_and_never_compared(compare: str) -> None:
    with pytest.raises(OffsetError, match=r"1[06] and 1[06] bytes"):
        getattr(A, compare)(SHORT)
    with pytest.raises(OffsetError, match=r"1[06] and 1[06] bytes"):
        getattr(SHORT, compare)(A)


def test_two_widths_are_refused_by_sorting_by_ranges_and_by_membership() -> None:
    with pytest.raises(OffsetError):
        max([A, SHORT])
    with pytest.raises(OffsetError):
        LsnRange(SHORT, A)
    with pytest.raises(OffsetError):
        assert SHORT in LsnRange(A, B)


@pytest.mark.parametrize("width", [0, 1, 9, 11, 15, 17, 32])
def test_other_widths_are_refused(width: int) -> None:
    with pytest.raises(OffsetError, match=f"{width} bytes"):
        Lsn(bytes(width))


@pytest.mark.parametrize("text", ["", "NULL", "0x00", "00000000:0000150f", "zz" * 16, "0" * 31, None, 15])
def test_values_that_are_not_lsns_are_refused(text: str | int | None) -> None:
    with pytest.raises(OffsetError):
        Lsn.parse(cast("str", text))


@given(wide, wide, wide)
def test_a_range_contains_the_commits_after_its_start_up_to_its_end(one: Lsn, other: Lsn, commit: Lsn) -> None:
    span = LsnRange(min(one, other), max(one, other))
    assert (commit in span) == (span.after.raw < commit.raw <= span.upto.raw)


@given(st.lists(wide, min_size=3, max_size=3).map(sorted), wide)
def test_adjacent_ranges_contain_each_commit_once(ends: list[Lsn], commit: Lsn) -> None:
    after, middle, upto = ends
    parts = [commit in LsnRange(after, middle), commit in LsnRange(middle, upto)]
    assert sum(parts) == (commit in LsnRange(after, upto))


def test_a_range_is_empty_exactly_when_its_ends_meet() -> None:
    assert LsnRange(A, A).empty
    assert A not in LsnRange(A, A)
    assert not LsnRange(A, B).empty


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(OffsetError, match="ends before it starts"):
        LsnRange(B, A)


def test_a_range_reads_as_half_open() -> None:
    assert str(LsnRange(A, B)) == f"({A}, {B}]"


@pytest.mark.parametrize("raw", [None, b"", bytes(8), bytes(10), bytes(16)])
def test_a_registration_without_a_position_has_none(raw: bytes | None) -> None:
    assert synchpoint_of(raw) is None


def test_a_registrations_position_is_its_bytes() -> None:
    assert synchpoint_of(A.raw) == A
