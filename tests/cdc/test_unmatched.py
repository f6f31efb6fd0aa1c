from typing import Any

import pytest

from airflow_provider_db2cdc.cdc.selection.tables import Selection
from airflow_provider_db2cdc.cdc.selection.unmatched import (
    Unmatched,
    refuse,
    tables_in_doubt,
    unmatched_columns,
    unmatched_tables,
)
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import ConfigurationError

A, B, DOLLAR = TableId("S", "A"), TableId("S", "B"), TableId("S", "ORDER$")
REGISTERED = [A, B, DOLLAR]


def schema(
    table: TableId,
    selection: Selection,
    names: tuple[str, ...] = ("ID", "SSN", "DOC"),
    uncaptured: tuple[str, ...] = ("DOC",),
    key: tuple[str, ...] = ("ID",),
) -> TableSchema:
    """A table's schema as the catalog's reader makes it: DOC is a LOB."""
    chosen = selection.columns(table, names, key)
    return TableSchema(
        table,
        tuple(Column(name, "INTEGER") for name in names if name in chosen and name not in uncaptured),
        key,
        uncaptured_columns=tuple(name for name in names if name in chosen and name in uncaptured),
        excluded_columns=tuple(name for name in names if name not in chosen),
    )


def columns(
    selection: Selection, tables: tuple[TableId, ...] = (A, B), others: dict[TableId, list[str]] | None = None
) -> list[Unmatched]:
    return unmatched_columns(selection, {table: schema(table, selection) for table in tables}, others)


def described(unmatched: list[Unmatched]) -> list[tuple[str, str, bool]]:
    return [(one.list_name, one.entry, one.refused) for one in unmatched]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"table_include": (r"S\.A", "S.GONE")}, ("table.include.list", "S.GONE", True)),
        ({"table_exclude": ("S.GONE", r"s\.a")}, ("table.exclude.list", "S.GONE", False)),
        ({"message_key": r"S\.A:ID;S\.GONE:ID"}, ("message.key.columns", r"S\.GONE", True)),
    ],
)
def test_each_entry_without_a_registered_table_is_found(lists: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    [found] = unmatched_tables(Selection(**lists), (), REGISTERED)
    assert described([found]) == [expected]
    assert found.problem == f"{expected[0]}: '{expected[1]}' matches no registered table"
    assert found.remedy.startswith("Registered are: S.A, S.B, S.ORDER$. Correct the entry")
    assert ("register the table" in found.remedy) == (expected[0] != "table.exclude.list")


def test_an_entry_may_be_about_a_registered_table_that_is_not_chosen() -> None:
    assert unmatched_tables(Selection(table_include=(r"S\.B",), message_key=r"S\.A:X"), (), REGISTERED) == []


def test_the_list_of_snapshots_is_about_chosen_tables() -> None:
    chosen = Selection(table_include=(r"S\.A",))
    [found] = unmatched_tables(chosen, (r"S\.A", r"S\.B"), REGISTERED)
    assert described([found]) == [("snapshot.include.collection.list", r"S\.B", True)]
    assert "Its tables are S.A." in found.remedy


def test_an_unmatched_entry_is_found_if_no_table_is_registered() -> None:
    [found] = unmatched_tables(Selection(table_include=(".*",)), (), [])
    assert "Registered are: none." in found.remedy


def test_a_dollar_that_is_not_escaped_gets_the_hint() -> None:
    [found] = unmatched_tables(Selection(table_include=("S.ORDER$",)), (), REGISTERED)
    assert found.remedy.startswith(r"Write S\.ORDER\$ for S.ORDER$: ")
    assert unmatched_tables(Selection(table_include=('"S"."ORDER$"', r"S\.ORDER\$")), (), REGISTERED) == []


def test_a_misspelt_column_in_an_exclude_list_is_refused() -> None:
    unmatched = columns(Selection(column_exclude=("S.A.SSM", r"S\.B\.SSN")))
    assert described(unmatched) == [("column.exclude.list", "S.A.SSM", True)]
    assert "Near it: S.A.SSN" in unmatched[0].remedy
    with pytest.raises(ConfigurationError, match=r"column\.exclude\.list: 'S\.A\.SSM' matches no column, so"):
        refuse(unmatched)


def test_a_column_that_is_not_captured_is_a_match() -> None:
    assert columns(Selection(column_exclude=(r"S\.A\.DOC",))) == []
    assert columns(Selection(column_include=(r"S\.A\.DOC",))) == []


def test_a_misspelt_column_in_an_include_list_is_a_warning() -> None:
    unmatched = columns(Selection(column_include=("S.A.SSM", r".*\.SSN")))
    assert described(unmatched) == [("column.include.list", "S.A.SSM", False)]
    refuse(unmatched)


def test_an_entry_that_matches_only_keys_is_a_warning() -> None:
    [found] = columns(Selection(column_exclude=(r"S\.A\.ID", r".*\.SSN")))
    assert described([found]) == [("column.exclude.list", r"S\.A\.ID", False)]
    assert "only columns of keys, which are always carried" in found.problem


@pytest.mark.parametrize("entry", [r"S\.C\.SSN", "S.C.SSN", "s.c.ssn", '"S"."C"."SSN"', r"S\.(A|C)\.SSNX?"])
def test_a_column_of_another_table_is_looked_up_before_it_is_refused(entry: str) -> None:
    selection, other = Selection(column_exclude=(entry,)), TableId("S", "C")
    tables = {B: schema(B, selection)}
    first = unmatched_columns(selection, tables)
    assert described(first) == [("column.exclude.list", entry, True)]
    assert other in tables_in_doubt(first, [A, B, other], tables.keys())
    assert described(unmatched_columns(selection, tables, {other: ["ID", "SSN"]})) == [
        ("column.exclude.list", entry, False)
    ]
    assert described(unmatched_columns(selection, tables, {other: ["ID", "SSM"]})) == [
        ("column.exclude.list", entry, True)
    ]


def test_only_tables_that_a_refused_entry_may_mean_are_looked_up() -> None:
    selection = Selection(column_exclude=(r"S\.C.*\.SSN", r"s\.new\.X", r"S\.A\.ID"))
    unmatched = columns(selection)
    registered = [A, B, TableId("S", "C1"), TableId("S", "D"), TableId("C", "C1")]
    doubtful = tables_in_doubt(unmatched, registered, {A, B})
    assert doubtful == [TableId("S", "C1"), TableId("S", "NEW"), TableId("s", "new")]
    assert tables_in_doubt(columns(Selection(column_include=("S.C1.X",))), registered, {A, B}) == []


@pytest.mark.parametrize("entry", [r"S\.GONE\.SSN", '"S"."GONE"."SSN"', r"S\.G.*\..*"])
def test_a_chosen_table_that_was_dropped_does_not_stop_the_others(entry: str) -> None:
    gone, selection = TableId("S", "GONE"), Selection(column_exclude=(entry,))
    tables = {A: schema(A, selection), gone: TableSchema(gone, (), ())}
    assert described(unmatched_columns(selection, tables)) == [("column.exclude.list", entry, False)]


def test_all_refused_entries_are_reported_together() -> None:
    unmatched = unmatched_tables(Selection(table_include=("S.X", "S.Y")), (), REGISTERED)
    with pytest.raises(ConfigurationError, match=r"'S\.X' matches no registered table; .*'S\.Y' matches no"):
        refuse(unmatched)
    refuse([])
