import random
import re
import warnings

import pytest

from airflow_provider_db2cdc.cdc.selection.java_syntax import find_java
from airflow_provider_db2cdc.cdc.selection.pattern import check_pattern, is_match, suggest
from airflow_provider_db2cdc.cdc.selection.table_names import check_pattern as check_signal_pattern
from airflow_provider_db2cdc.cdc.selection.table_names import match_tables
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, SignalError

DOLLAR = TableId("S", "ORDER$")


@pytest.mark.parametrize(
    ("pattern", "found", "form"),
    [
        (r"\QS.T\E", r"\Q...\E", r"Write S\.T instead."),
        (r"S\.\Qa b$", r"\Q...\E", r"Write S\.a\ b\$ instead."),
        (r"S\.\E", r"\E", "Remove it"),
        (r"BANK[A-Z&&[^X]]*\..*", "&& in a class", "(?=[^X])[A-Z]"),
        (r"S\.[a[bc]]", "[ in a class", "Write one class"),
        (r"S\.[[:alpha:]]+", "[ in a class", "Write one class"),
        (r"S\.[^]&&X]", "&& in a class", "(?=[^X])[A-Z]"),
        (r"S\.[A--B]", "-- in a class", "once"),
        (r"S\.[A||B]", "|| in a class", "once"),
        (r"S\.[A~~B]", "~~ in a class", "once"),
        (r"S\.\p{Lu}+", r"\p", "[A-Za-z]"),
        (r"S\.[\P{L}X]", r"\P", "[A-Za-z]"),
        (r"S\.(?<name>A|B)", "(?<name>...)", "(?P<name>...)"),
        (r"S\.(?P<n>A)\k<n>", r"\k", "(?P=name)"),
        (r"S\.(?i)a", "(?i)", "case is ignored"),
        (r"(?-i)S\.a", "(?-i)", "case is ignored"),
        (r"(?iU)S\.a", "(?iU)", "case is ignored"),
        (r"S\.A\h+B", r"\h", r"[ \t]"),
        (r"S\.A\H", r"\H", r"[^ \t]"),
        (r"S\.A\v", r"\v", r"\n"),
        (r"S\.A\R", r"\R", r"\n"),
        (r"S\.A\z", r"\z", "matches the whole name"),
        (r"\GS\.A", r"\G", "matches the whole name"),
        (r"S\.A\x{41}", r"\x{", "the character itself"),
        (r"S\.A\0101", r"\0", "the character itself"),
    ],
)
def test_javas_syntax_is_refused_with_its_form_in_python(pattern: str, found: str, form: str) -> None:
    for check, error in ((check_pattern, ConfigurationError), (check_signal_pattern, SignalError)):
        with pytest.raises(error) as raised:
            check(pattern)
        assert raised.value.problem == f"'{pattern}' has {found}, and patterns are regular expressions of Python"
        assert form in raised.value.remedy


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"(?i)s\.a", "A"),
        (r"S\.A++", "AA"),
        (r"S\.(?>A|B)", "B"),
        (r"S\.(?i:a)", "A"),
        (r"S\.(?!X)[A-Z]+", "AB"),
        (r"S\.(?<!X)A", "A"),
        (r"S\.[]A]", "]"),
        (r"S\.[\[&]", "["),
        (r"S\.A\Z", "A"),
        (r"S\.\\Q", r"\Q"),
        (r"S\.[A-Z&|~-]+", "A&B|C~D-E"),
        (r"S\.A$", "A"),
    ],
)
def test_syntax_that_java_and_python_share_is_taken(pattern: str, name: str) -> None:
    assert is_match(pattern, ("S", name))


def test_no_accepted_pattern_makes_python_warn() -> None:
    letters = random.Random(7)
    pieces = [*"[]^-&|~AB.(){}*+?:\\$", "[:", "&&", "--", "\\p", "\\[", "(?i)", "(?:", "\\Q", "\\E", "[^"]
    taken = 0
    for _ in range(30_000):
        pattern = "".join(letters.choices(pieces, k=letters.randint(1, 9)))
        if find_java(pattern) is None:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    re.compile(pattern)
                    taken += 1
                except re.error:
                    continue
    assert taken > 1000


@pytest.mark.parametrize(
    ("pattern", "names", "expected"),
    [
        ('"S"."ORDER$"', ("S", "ORDER$"), True),
        ('S."ORDER$"', ("S", "ORDER$"), True),
        ('"S"."order$"', ("S", "ORDER$"), False),
        ('"S"."a,b"', ("S", "a,b"), True),
        ('"S"."a""b"', ("S", 'a"b'), True),
        ('"S"."a.b"', ("S", "a.b"), True),
        ('"S.a"."b"', ("S", "a.b"), False),
        ('"S"."T"."c.d"', ("S", "T", "c.d"), True),
        ('"S"."T"."C"', ("S", "T", "CC"), False),
        (r"S\.ORDER\$", ("S", "ORDER$"), True),
        ("S.ORDER$", ("S", "ORDER$"), False),
        (r"S\.T\..*", ("S", "T", "C"), True),
    ],
)
def test_quoted_names_are_exact_and_all_else_is_an_expression(
    pattern: str, names: tuple[str, ...], expected: bool
) -> None:
    check_pattern(pattern, len(names))
    assert is_match(pattern, names) is expected


def test_an_invalid_expression_gets_the_hint_how_signs_are_written() -> None:
    with pytest.raises(ConfigurationError, match=r"'\*\.T' is not a regular expression: nothing to repeat") as raised:
        check_pattern("*.T")
    assert raised.value.remedy == (
        'Put a backslash before each sign that stands for itself, or write "schema"."table".'
    )


@pytest.mark.parametrize("pattern", ["S.ORDER$", r"S\.ORDER$", "s.order$", '"S"."order$"'])
def test_a_name_with_signs_of_an_expression_gets_the_hint_to_escape(pattern: str) -> None:
    assert suggest(pattern, ["S.A", "S.ORDER$"]).startswith(r"Write S\.ORDER\$ for S.ORDER$: ")
    with pytest.raises(SignalError) as raised:
        match_tables(pattern, [TableId("S", "A"), DOLLAR])
    assert raised.value.problem == f"'{pattern}' matches no table of this pipeline"
    assert r"Write S\.ORDER\$ for" in raised.value.remedy


def test_a_misspelt_name_gets_similar_names_as_a_hint() -> None:
    assert suggest(r"S\.T\.SSM", ["S.T.ID", "S.T.SSN"]) == "Near it: S.T.SSN."
    assert suggest("X.Y", ["S.A"]) == ""
