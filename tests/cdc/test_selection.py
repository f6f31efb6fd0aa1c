import re
from typing import Any

import pytest

from airflow_provider_db2cdc.cdc.selection.tables import Selection
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

A, AB, B, OTHER = TableId("S", "A"), TableId("S", "AB"), TableId("S", "B"), TableId("OTHER", "A")
REGISTERED = [B, A, AB, OTHER]


def test_without_lists_every_registered_table_is_taken_once_and_sorted() -> None:
    assert Selection().tables([*REGISTERED, A]) == [OTHER, A, AB, B]


def select(field: str, *entries: str) -> Selection:
    """Return a selection with one list."""
    lists: dict[str, Any] = {field: entries}
    return Selection(**lists)


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ((r"S\.A",), [A]),
        (("s.a",), [A]),
        (("A",), []),
        (("S",), []),
        ((r"S\.A|S\.B",), [A, B]),
        ((r"S\..*",), [A, AB, B]),
        ((r".*\.a",), [OTHER, A]),
        ((r"S\.A", r"S\.AB"), [A, AB]),
        ((r"S\.A", r"S\.A.*"), [A, AB]),
        (('"S"."A"', 'OTHER."A"'), [OTHER, A]),
        (('"s"."a"',), []),
    ],
)
def test_table_patterns_are_anchored_and_ignore_case_unless_quoted(
    patterns: tuple[str, ...], chosen: list[TableId]
) -> None:
    assert Selection(table_include=patterns).tables(REGISTERED) == chosen


def test_an_alternative_is_anchored_at_both_of_its_ends() -> None:
    assert Selection(table_exclude=(r"S\.A|B",)).tables(REGISTERED) == [OTHER, AB, B]


def test_excluded_tables_are_omitted_and_unmatched_patterns_are_allowed() -> None:
    assert Selection(table_exclude=(r"s\.a.*", "NOT.THERE")).tables(REGISTERED) == [OTHER, B]


@pytest.mark.parametrize("kind", ["table", "column"])
def test_both_lists_of_a_kind_are_refused(kind: str) -> None:
    lists: dict[str, Any] = {f"{kind}_include": ("a",), f"{kind}_exclude": ("b",)}
    with pytest.raises(ConfigurationError, match=rf"{kind}\.include\.list and {kind}\.exclude\.list are both given"):
        Selection(**lists)


def test_lists_of_different_kinds_go_together() -> None:
    Selection(table_include=("a",), column_exclude=("b",))
    Selection(table_exclude=("a",), column_include=("b",))


@pytest.mark.parametrize("field", ["table_include", "table_exclude", "column_include", "column_exclude"])
@pytest.mark.parametrize("pattern", ["(", "a{4294967296}"])
def test_a_pattern_that_is_not_a_regular_expression_is_refused_by_name(field: str, pattern: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{re.escape(pattern)}' is not a regular expression"):
        select(field, "ok", pattern)


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), ["ID", "NAME", "note"]),
        (Selection(column_include=(r"S\.A\.name",)), ["ID", "NAME"]),
        (Selection(column_include=(r"S\.B\..*",)), ["ID"]),
        (Selection(column_exclude=(r"s\.a\.(id|note)",)), ["ID", "NAME"]),
        (Selection(column_exclude=("NAME",)), ["ID", "NAME", "note"]),
        (Selection(column_exclude=(r"S\.A\.NAM",)), ["ID", "NAME", "note"]),
        (Selection(column_exclude=('"S"."A"."note"',)), ["ID", "NAME"]),
        (Selection(column_exclude=('"S"."A"."NOTE"',)), ["ID", "NAME", "note"]),
    ],
)
def test_column_patterns_match_the_full_name_and_the_key_always_stays(selection: Selection, chosen: list[str]) -> None:
    assert selection.columns(A, ["ID", "NAME", "note"], ("ID",)) == chosen


def test_a_key_column_is_found_by_its_exact_name() -> None:
    assert Selection(column_exclude=(".*",)).columns(A, ["ID", "id"], ("ID",)) == ["ID"]


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("table_include", '"S"."A'),
        ("table_include", '"S"."A"."X"'),
        ("table_exclude", '"A"'),
        ("column_include", '"S"."A"'),
        ("column_exclude", '"S"."A"."X"."Y"'),
    ],
)
def test_a_quoted_name_has_all_of_its_parts(field: str, entry: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a quoted name") as raised:
        select(field, entry)
    assert str(raised.value).startswith(f"{field.replace('_', '.')}.list: ")
    assert ('."column"' in raised.value.remedy) == field.startswith("column")


@pytest.mark.parametrize("field", ["table_include", "table_exclude", "column_include", "column_exclude"])
def test_javas_syntax_is_refused_with_its_form_in_python(field: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        select(field, r"\QS.T\E")
    assert str(raised.value).startswith(rf"{field.replace('_', '.')}.list: '\QS.T\E' has \Q...\E")
    assert raised.value.remedy == r"Write S\.T instead."
