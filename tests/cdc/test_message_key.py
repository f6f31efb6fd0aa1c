import pytest

from airflow_provider_db2cdc.cdc.selection.message_key import KeyRule, NamedKey, named_key, parse_key_rules
from airflow_provider_db2cdc.cdc.selection.tables import Selection
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

A, AB, B = TableId("S", "A"), TableId("S", "AB"), TableId("S", "B")
ODD = TableId("my schema", 'a.b;c:"d"')


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ()),
        (" ; ;", ()),
        (r"S\.A:ID", (KeyRule(r"S\.A", ("ID",)),)),
        (r"S\.A:X,Y;S\.B:Z", (KeyRule(r"S\.A", ("X", "Y")), KeyRule(r"S\.B", ("Z",)))),
        (" S\\.A : X , Y ;\n S\\.B:Z;", (KeyRule(r"S\.A", ("X", "Y")), KeyRule(r"S\.B", ("Z",)))),
        (r"S\.(?:A|B):X", (KeyRule(r"S\.(?:A|B)", ("X",)),)),
        (r"S\.A{1,3}:X", (KeyRule(r"S\.A{1,3}", ("X",)),)),
        (r"S\.A:Order No", (KeyRule(r"S\.A", ("Order No",)),)),
        (r'S\.A:"a:b","c,d","e;f"', (KeyRule(r"S\.A", ('"a:b"', '"c,d"', '"e;f"')),)),
        ('"my schema"."a.b;c:""d""":X', (KeyRule('"my schema"."a.b;c:""d"""', ("X",)),)),
    ],
)
def test_entries_are_a_table_a_colon_and_columns(text: str, rules: tuple[KeyRule, ...]) -> None:
    assert parse_key_rules(text) == rules


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"S\.A", r"'S\\.A' is not a table, a colon and columns\. Write <schema\.table>:<column>"),
        (r"S\.A:X;S\.B", r"'S\\.B' is not a table"),
        (r"S\.A:", "is not a table"),
        (r"S\.A:,", "is not a table"),
        (":X", "is not a table"),
        (r"S\.(A:X", "is not a regular expression"),
        (r'S\.A:"X', "leaves a double quote open"),
        (r'S\.A:"X"Y', "is not a column's name"),
        ('"A":X', "is not a quoted name"),
        (r"\QS.A\E:X", r"'\\QS\.A\\E' has \\Q\.\.\.\\E.*Write S\\\.A instead"),
    ],
)
def test_an_invalid_entry_is_refused_with_the_propertys_name(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"message\.key\.columns.*{reason}"):
        Selection(message_key=text)


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        (r"S\.A", [A]),
        (r"s\.a", [A]),
        (r"S\.A.*", [A, AB]),
        (r"S\.A|S\.B", [A, B]),
        ("A", []),
        ('"S"."A"', [A]),
        ('"s"."a"', []),
        ('"my schema"."a.b;c:""d"""', [ODD]),
    ],
)
def test_patterns_are_anchored_and_ignore_case_and_quoted_names_are_exact(pattern: str, covered: list[TableId]) -> None:
    assert [table for table in (A, AB, B, ODD) if KeyRule(pattern, ("X",)).covers(table)] == covered


def test_a_table_that_no_entry_covers_keeps_its_own_key() -> None:
    assert named_key(parse_key_rules(r"S\.A:X"), B) is None


def test_columns_of_all_entries_that_cover_a_table_are_its_key() -> None:
    assert named_key(parse_key_rules(r"S\..*:X;S\.B:Z;S\.A:Y,X"), A) == NamedKey(("X", "Y", "X"))


NAMES = ["A", "Order No", "x", "X", "Mixed"]


@pytest.mark.parametrize(
    ("columns", "found", "lacking"),
    [
        (("mixed", "a"), ("Mixed", "A"), ()),
        (("A", "a"), ("A",), ()),
        (('"A"', '"Order No"'), ("A", "Order No"), ()),
        (("order no",), ("Order No",), ()),
        (('"a"', "A"), ("A",), ('"a"',)),
        (("x", "X"), ("x", "X"), ()),
        (("NOPE", "A", "gone"), ("A",), ("NOPE", "gone")),
    ],
    ids=["in the key's order", "once", "quoted", "blank", "quoted is exact", "exact goes first", "lacking"],
)
def test_columns_are_found_by_name(columns: tuple[str, ...], found: tuple[str, ...], lacking: tuple[str, ...]) -> None:
    key = NamedKey(columns)
    assert (key.found(NAMES), key.lacking(NAMES)) == (found, lacking)


def test_a_column_that_only_case_would_decide_is_not_guessed() -> None:
    assert NamedKey(("id",)).lacking(["Id", "ID"]) == ("id",)
