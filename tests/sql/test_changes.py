"""Reads of change tables, run by SQLite on what capture would have written of random histories."""

import random
import re
import sqlite3
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.history import History, HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.sql.changes import (
    change_rows,
    change_table,
    commit_at_row,
    has_before_images,
    pairing_schema,
    split,
    timed_change_rows,
    within,
)
from airflow_provider_db2cdc.sql.quoting import lsn_literal

META = ("IBMSNAP_COMMITSEQ", "IBMSNAP_INTENTSEQ", "IBMSNAP_OPERATION")
SCHEMA = TableSchema(
    TableId("S", "T"), (Column("ID", "INTEGER", 4), Column("A", "INTEGER", 4), Column("B", "VARCHAR", 10)), ("ID",)
)
CHANGE = tuple(Column(name, "VARCHAR", 16, bit_data=True) for name in META)
CAPTURE = CaptureRegistration(
    table=SCHEMA.table, cd_owner="ASN odd", cd_table='CD"T', state="A", state_info="", update_as="DI",
    before_prefix=None, pruned_upto=None, new_synchpoint=None, cd_columns=(*CHANGE, *SCHEMA.columns),
    identity=CaptureIdentity("", "", "", ""),
)  # fmt: skip
IMAGES = tuple(Column(name, "INTEGER") for name in ("XID", "XA", "XB"))
PREFIXED = replace(CAPTURE, before_prefix="X", cd_columns=(*CAPTURE.cd_columns, *IMAGES))


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


A, B = lsn(0x0A), lsn(0xFF00)


def change_database(drawn: History) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("ATTACH ':memory:' AS \"ASN odd\"")
    connection.execute(f"CREATE TABLE {change_table(CAPTURE)} ({', '.join((*META, 'ID', 'A', 'B'))})")
    rows = [
        (row.commit.raw, row.intent.raw, row.op, *cast("tuple[Any, ...]", row.image)) for row in drawn.changes["T0"]
    ]
    random.Random(1).shuffle(rows)
    connection.executemany(f"INSERT INTO {change_table(CAPTURE)} VALUES (?, ?, ?, ?, ?, ?)", rows)
    return connection


def fetched(connection: sqlite3.Connection, select: str) -> list[tuple[Any, ...]]:
    return connection.execute(
        re.sub(r"OFFSET (\d+) ROWS FETCH FIRST 1 ROW ONLY$", r"LIMIT 1 OFFSET \1", select)
    ).fetchall()


def expected(drawn: History, span: LsnRange) -> list[tuple[Any, ...]]:
    return [
        (row.commit.raw, row.intent.raw, row.op, *cast("tuple[Any, ...]", row.image))
        for row in drawn.changes["T0"]
        if row.commit in span
    ]


def histories() -> list[History]:
    return [random_history(seed, HistoryOptions(composite=False, lsn_bytes=(16, 10)[seed % 2])) for seed in range(30)]


def test_a_range_reads_the_rows_of_its_commits_and_no_others() -> None:
    for drawn in histories():
        connection = change_database(drawn)
        for at, after in enumerate(drawn.positions):
            for upto in drawn.positions[at:]:
                span = LsnRange(after, upto)
                assert sorted(fetched(connection, change_rows(SCHEMA, CAPTURE, span))) == expected(drawn, span)


def test_the_commit_at_a_row_number_is_found_and_none_after_the_last() -> None:
    for drawn in histories():
        connection = change_database(drawn)
        span = LsnRange(drawn.positions[1], drawn.positions[-1])
        rows = expected(drawn, span)
        for at in range(len(rows)):
            assert fetched(connection, commit_at_row(CAPTURE, span, at)) == [(rows[at][0],)]
        assert fetched(connection, commit_at_row(CAPTURE, span, len(rows))) == []


@pytest.mark.parametrize("rows_per_read", [1, 3, 10])
def test_split_ranges_read_every_row_once_and_cut_no_commit(rows_per_read: int) -> None:
    for drawn in histories():
        connection = change_database(drawn)
        whole = LsnRange(drawn.positions[0], drawn.positions[-1])
        cuts: list[Lsn] = []
        while found := fetched(
            connection,
            commit_at_row(CAPTURE, LsnRange(cuts[-1] if cuts else whole.after, whole.upto), rows_per_read - 1),
        ):
            cuts.append(Lsn(found[0][0]))
        parts = [fetched(connection, change_rows(SCHEMA, CAPTURE, span)) for span in split(whole, cuts)]
        assert sorted(row for part in parts for row in part) == expected(drawn, whole)
        commits = [{row[0] for row in part} for part in parts]
        assert sum(map(len, commits)) == len(set().union(*commits))


@settings(deadline=None, database=None)
@given(st.integers(0, 20), st.integers(1, 20), st.sets(st.integers(1, 40)))
def test_split_ranges_are_adjacent_and_cover_the_whole(after: int, length: int, offsets: set[int]) -> None:
    span = LsnRange(lsn(after), lsn(after + length))
    cuts = [lsn(after + offset) for offset in sorted(offsets) if offset <= length]
    parts = split(span, cuts)
    assert parts[0].after == span.after
    assert parts[-1].upto == span.upto
    assert all(one.upto == other.after for one, other in pairwise(parts))
    assert {part.upto for part in parts} == {*cuts, span.upto}
    assert not any(part.empty for part in parts)


def test_a_range_without_cuts_or_cut_at_its_end_is_itself() -> None:
    assert split(LsnRange(A, B), []) == split(LsnRange(A, B), [B]) == [LsnRange(A, B)]


def test_cuts_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(OffsetError, match="ends before it starts"):
        split(LsnRange(A, B), [lsn(0x20), lsn(0x10)])


def test_a_range_compares_the_bare_column_with_bit_literals() -> None:
    assert within(LsnRange(A, B)) == (
        "IBMSNAP_COMMITSEQ > X'0000000000000000000000000000000A' "
        "AND IBMSNAP_COMMITSEQ <= X'0000000000000000000000000000FF00'"
    )


@settings(deadline=None, database=None)
@given(st.sampled_from((10, 16)).flatmap(lambda width: st.binary(min_size=width, max_size=width)))
def test_any_lsn_reads_back_from_its_literal(raw: bytes) -> None:
    assert sqlite3.connect(":memory:").execute(f"SELECT {lsn_literal(Lsn(raw))}").fetchone() == (raw,)


def test_columns_are_selected_in_order_and_in_their_transfer_form() -> None:
    schema = replace(SCHEMA, columns=(Column('T"', "TIME"), Column("ID", "INTEGER", 4)))
    select = change_rows(schema, CAPTURE, LsnRange(A, B))
    assert select == (
        "SELECT IBMSNAP_COMMITSEQ AS CC, IBMSNAP_INTENTSEQ AS CI, IBMSNAP_OPERATION AS CO, "
        'HOUR("T""") * 10000 + MINUTE("T""") * 100 + SECOND("T""") AS C0, "ID" AS C1 FROM "ASN odd"."CD""T" '
        "WHERE " + within(LsnRange(A, B))
    )


def test_before_images_are_selected_if_every_column_has_one() -> None:
    assert has_before_images(SCHEMA, PREFIXED)
    select = change_rows(SCHEMA, PREFIXED, LsnRange(A, B))
    assert '"ID" AS C0, "A" AS C1, "B" AS C2, "XID" AS B0, "XA" AS B1, "XB" AS B2 FROM' in select


@pytest.mark.parametrize(
    "capture",
    [
        CAPTURE,
        replace(PREFIXED, before_prefix=None),
        replace(PREFIXED, before_prefix=""),
        replace(PREFIXED, before_prefix="Y"),
        replace(PREFIXED, cd_columns=PREFIXED.cd_columns[:-1]),
    ],
    ids=["not registered", "no prefix", "empty prefix", "another prefix", "a column without one"],
)
def test_before_images_are_not_selected_if_a_column_has_none(capture: CaptureRegistration) -> None:
    assert not has_before_images(SCHEMA, capture)
    assert "AS B0" not in change_rows(SCHEMA, capture, LsnRange(A, B))


def keyed(nullable: bool) -> TableSchema:
    return replace(SCHEMA, columns=(replace(SCHEMA.columns[0], nullable=nullable), *SCHEMA.columns[1:]))


@pytest.mark.parametrize("capture", [CAPTURE, PREFIXED], ids=["two rows for an update", "before images"])
def test_the_key_pairs_change_rows_if_it_cannot_be_null(capture: CaptureRegistration) -> None:
    assert pairing_schema(keyed(nullable=False), capture).names == ("ID",)
    assert pairing_schema(keyed(nullable=True), capture) == SCHEMA


def test_all_columns_pair_change_rows_if_the_key_has_before_images_only() -> None:
    capture = replace(PREFIXED, cd_columns=PREFIXED.cd_columns[:-1])
    assert pairing_schema(keyed(nullable=False), capture) == keyed(nullable=False)


def test_all_columns_pair_change_rows_without_a_key() -> None:
    keyless = replace(keyed(nullable=False), key=())
    assert pairing_schema(keyless, CAPTURE) == keyless


def test_each_change_row_has_the_first_time_of_its_commit_or_none() -> None:
    for drawn in histories():
        connection = change_database(drawn)
        commits = sorted({row.commit for row in drawn.changes["T0"]})
        connection.execute('CREATE TABLE "ASN odd".IBMSNAP_UOW (IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER)')
        units = [(commit.raw, at) for number, commit in enumerate(commits[1:]) for at in (number + 5, number)]
        connection.executemany('INSERT INTO "ASN odd".IBMSNAP_UOW VALUES (?, ?)', units)
        times = {commit.raw: number for number, commit in enumerate(commits[1:])}
        span = LsnRange(drawn.positions[0], drawn.positions[-1])
        select = timed_change_rows("ASN odd", SCHEMA, CAPTURE, span)
        assert sorted(fetched(connection, select)) == [(*row, times.get(row[0])) for row in expected(drawn, span)]
