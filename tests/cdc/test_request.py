import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.selection.table_names import (
    Condition,
    check_condition,
    check_pattern,
    condition_of,
    match_tables,
)
from airflow_provider_db2cdc.cdc.signal.request import (
    ChangeOffsets,
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    StopSnapshot,
    parse,
)
from airflow_provider_db2cdc.cdc.signal.signal import Signal, signal_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError

ORDERS, LINES, ODD = TableId("SALES", "ORDERS"), TableId("SALES", "ORDER_LINES"), TableId("my s", 'a.b "c"')
TABLES = [LINES, ORDERS, ODD]


def signal(kind: str, data: dict[str, Any] | str) -> Signal:
    return Signal("1", kind, data if isinstance(data, str) else json.dumps(data), "source")


def test_execute_snapshot_in_debeziums_form() -> None:
    data = {
        "data-collections": ["SALES.ORDERS", "SALES\\..*", "SALES.ORDERS"],
        "type": "BLOCKING",
        "additional-conditions": [{"data-collection": "SALES.ORDERS", "filter": " STATUS = 1 "}],
        "surrogate-key": "SEQ",
    }
    assert parse(signal("execute-snapshot", data)) == ExecuteSnapshot(
        ("SALES.ORDERS", "SALES\\..*"), "blocking", (Condition("SALES.ORDERS", "STATUS = 1"),), "SEQ"
    )


def test_a_blocking_snapshot_takes_a_select_for_a_filter() -> None:
    select = "select ID, A from SALES.ORDERS where A < 500 order by ID"
    data = {
        "data-collections": ["SALES.ORDERS"],
        "type": "blocking",
        "additional-conditions": [{"data-collection": "SALES.ORDERS", "filter": select}],
    }
    conditions = (Condition("SALES.ORDERS", select),)
    assert parse(signal("execute-snapshot", data)) == ExecuteSnapshot(("SALES.ORDERS",), "blocking", conditions)


def test_defaults_of_execute_snapshot() -> None:
    data = {"data-collections": ["A.B"], "additional-condition": "", "surrogate-key": "", "type": ""}
    assert parse(signal("execute-snapshot", data)) == ExecuteSnapshot(("A.B",)), "as in Debezium"


def test_old_single_condition_is_for_all_tables() -> None:
    request = parse(signal("execute-snapshot", {"data-collections": ["A.B"], "additional-condition": "X > 1"}))
    assert isinstance(request, ExecuteSnapshot)
    assert condition_of(TableId("A", "B"), request.conditions) == "X > 1"


@pytest.mark.parametrize(
    ("kind", "data", "request_"),
    [
        ("stop-snapshot", {}, StopSnapshot()),
        ("stop-snapshot", "", StopSnapshot()),
        ("stop-snapshot", {"type": "incremental", "data-collections": ["A.B"]}, StopSnapshot(("A.B",), "incremental")),
        ("stop-snapshot", {"type": None, "data-collections": None}, StopSnapshot()),
        ("pause-snapshot", {"type": "Blocking"}, PauseSnapshot("blocking")),
        ("pause-snapshot", {"type": ""}, PauseSnapshot()),
        ("resume-snapshot", {"type": "incremental"}, ResumeSnapshot("incremental")),
        ("resume-snapshot", {"type": "heal"}, ResumeSnapshot("heal")),
        ("execute-snapshot", {"data-collections": ["A.B"], "type": "HEAL"}, ExecuteSnapshot(("A.B",), "heal")),
        ("log", {"message": "at {}"}, LogMessage("at {}")),
        ("restart-table", {"data-collections": ["A.B"]}, ChangeOffsets("restart", ("A.B",))),
        ("restart-table", {"all-failed": True, "data-collections": None}, ChangeOffsets("restart", (), True)),
        ("restore-offset", {"data-collections": ["A.B"], "all-failed": False}, ChangeOffsets("restore", ("A.B",))),
    ],
)
def test_other_types(kind: str, data: dict[str, str | list[str] | None] | str, request_: object) -> None:
    assert parse(signal(kind, data)) == request_


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("exec-snapshot", {}, "'exec-snapshot' is unknown.*execute-snapshot"),
        ("restart-table", {}, 'names no data-collections.*"all-failed": true'),
        ("restart-table", {"data-collections": ["("]}, "not a regular expression"),
        ("restore-offset", {"all-failed": "yes"}, "all-failed is not true or false"),
        ("restore-offset", {"type": "incremental"}, "takes no 'type'"),
        ("execute-snapshot", "{", "not JSON"),
        pytest.param("execute-snapshot", "[" * 100_000, "not JSON", id="too deep"),
        ("log", '{"message": "\\ud800"}', "not JSON"),
        ("execute-snapshot", "[1]", "not a JSON object"),
        ("execute-snapshot", {}, "names no data-collections"),
        ("execute-snapshot", {"data-collections": "A.B"}, "not a list"),
        ("execute-snapshot", {"data-collections": [1]}, "not a list of names"),
        ("execute-snapshot", {"data-collections": ["("]}, "not a regular expression"),
        ("execute-snapshot", {"data-collections": ["a{4294967296}"]}, "not a regular expression"),
        ("execute-snapshot", {"data-collections": ["A" * 1001]}, "has 1001 characters, allowed are 1000"),
        ("execute-snapshot", {"data-collections": ['"A"."B']}, "not a quoted name"),
        ("execute-snapshot", {"data-collections": ["A"], "type": "fast"}, "'fast' is not a kind"),
        ("execute-snapshot", {"data-collections": ["A"], "surrogate-key": 1}, "surrogate-key is not a text"),
        ("execute-snapshot", {"data-collections": ["A"], "condition": "x"}, "takes no 'condition'"),
        ("execute-snapshot", {"data-collections": ["A"], "additional-conditions": {"a": 1}}, "not a list"),
        (
            "execute-snapshot",
            {"data-collections": ["A"], "additional-conditions": [{}]},
            "a data-collection and a filter",
        ),
        (
            "execute-snapshot",
            {"data-collections": ["A"], "additional-conditions": [{"data-collection": "A", "filter": "1=1;"}]},
            "the condition for A holds ';'",
        ),
        (
            "execute-snapshot",
            {"data-collections": ["A"], "additional-conditions": [{"data-collection": "A", "filter": " "}]},
            "the condition for A is empty",
        ),
        (
            "execute-snapshot",
            {"data-collections": ["A"], "additional-conditions": [{"data-collection": "A", "filter": "SELECT 1"}]},
            "the filter for A is a select, which incremental snapshots do not take",
        ),
        (
            "execute-snapshot",
            {"data-collections": ["A"], "type": "blocking", "additional-condition": "SELECT * FROM A WITH UR"},
            "reads uncommitted rows",
        ),
        ("stop-snapshot", {"data-collections": ["("]}, "not a regular expression"),
        ("stop-snapshot", {"data-collections": ""}, "data-collections is not a list"),
        ("stop-snapshot", {"data-collections": {}}, "data-collections is not a list"),
        ("stop-snapshot", {"data-collections": 0}, "data-collections is not a list"),
        ("stop-snapshot", {"type": 0}, "type is not a text"),
        ("execute-snapshot", {"data-collections": ["A"], "surrogate-key": 0}, "surrogate-key is not a text"),
        ("execute-snapshot", {"data-collections": ["A"], "additional-conditions": ""}, "not a list"),
        ("execute-snapshot", {"data-collections": ["A"], "additional-condition": 0}, "not a text"),
        ("pause-snapshot", {"type": "x"}, "not a kind of snapshot"),
        ("pause-snapshot", {"data-collections": ["A"]}, "takes no 'data-collections'"),
        ("resume-snapshot", {"data-collections": []}, "takes no 'data-collections'"),
        ("stop-snapshot", {"additional-conditions": []}, "takes no 'additional-conditions'"),
        ("stop-snapshot", {"surrogate-key": "K"}, "takes no 'surrogate-key'"),
        ("log", {"message": "m", "type": "blocking"}, "takes no 'type'"),
        ("log", {}, "no message"),
    ],
)
def test_invalid_signal_is_refused_with_the_reason(kind: str, data: dict[str, Any] | str, words: str) -> None:
    with pytest.raises(SignalError, match=words):
        parse(signal(kind, data))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"id": "1", "type": "log", "data": {"message": "m"}}, Signal("1", "log", '{"message": "m"}', "file", 5)),
        ({"id": 0, "type": "log", "data": "{}"}, Signal("0", "log", "{}", "file", 5)),
        ({"type": "log"}, Signal("default", "log", "{}", "file", 5)),
        ({"id": "", "type": "log", "data": None}, Signal("default", "log", "{}", "file", 5)),
        ({"id": "1", "data": [1]}, Signal("1", "", "[1]", "file", 5)),
        ({"id": "1", "type": "stop-snapshot", "data": 0}, Signal("1", "stop-snapshot", "0", "file", 5)),
    ],
)
def test_signal_is_the_same_as_an_object_and_as_its_text(item: dict[str, Any], expected: Signal) -> None:
    text = json.dumps(item)
    for given_as in (item, text, text.encode()):
        assert signal_of(given_as, "file", "default", 5) == expected


NO_JSON = ["{oops", b"\xff", "", "[" * 100_000, '{"id": "\\ud800", "type": "log"}']
NO_OBJECT = ["[1]", "7", "null", '"text"', [1], None]


@pytest.mark.parametrize(
    ("item", "problem"),
    [*((item, "is not JSON: .+") for item in NO_JSON), *((item, "is not a JSON object") for item in NO_OBJECT)],
    ids=lambda item: repr(item)[:20],
)
def test_invalid_object_is_refused_under_the_default_id_with_its_problem(
    item: str | bytes | list[int] | None, problem: str
) -> None:
    found = signal_of(item, "kafka", "default")
    assert (found.id, found.channel) == ("default", "kafka")
    with pytest.raises(SignalError, match=problem):
        parse(found)


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"id": "7", "type": "stop-snapshot", "data-collections": ["A"]}, "data-collections"),
        ({"id": "7", "type": "stop-snapshot", "Data": {"data-collections": ["A"]}}, "Data"),
        ({"id": "7", "type": "pause-snapshot", "kind": "blocking", "data": {}}, "kind"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_field_in_the_wrong_place_is_refused_under_the_signals_id(item: dict[str, Any], name: str) -> None:
    """Otherwise a stop of one table would stop all."""
    found = signal_of(item, "kafka", "default")
    assert found.id == "7"
    with pytest.raises(SignalError, match=f"it has '{name}', but takes only id, type and data"):
        parse(found)


def test_too_long_ids_are_replaced() -> None:
    """The outcome is stored in a Variable next to the offsets. Some databases limit its size."""
    long = "x" * 100_000
    assert signal_of({"id": long[:300], "type": "log"}, "file", "default").id == long[:300]
    found = signal_of({"id": long, "type": "log"}, "file", "default")
    assert found.id == "default"
    with pytest.raises(SignalError, match="its id has 100000 characters, 300 at most"):
        parse(found)


TWICE = '{"data-collections": ["S.A"], "data-collections": ["S.B"]}'


@pytest.mark.parametrize(
    "found",
    [
        signal_of('{"type": "stop-snapshot", "data": {"data-collections": ["A"]}, "data": {}}', "file", "default"),
        signal_of(f'{{"type": "execute-snapshot", "data": {TWICE}}}', "file", "default"),
        Signal("1", "execute-snapshot", TWICE, "source"),
    ],
    ids=["data", "within data", "of a row"],
)
def test_a_name_that_is_given_twice_is_refused(found: Signal) -> None:
    """The name is ambiguous. JSON readers silently take the last value."""
    with pytest.raises(SignalError, match=r"'data(-collections)?' is given twice"):
        parse(found)


def test_digest_of_a_request_does_not_depend_on_id_and_channel() -> None:
    one = Signal("1", "log", '{"message": "x"}', "file", 5)
    assert one.asked == replace(one, id="2", channel="kafka", at_ms=6).asked
    others = [replace(one, type="stop-snapshot"), replace(one, data="{}"), replace(one, problem="it is not JSON")]
    assert len({signal.asked for signal in (one, *others)}) == 4


def test_signal_without_an_id_is_refused() -> None:
    with pytest.raises(SignalError, match="no id"):
        parse(Signal("", "log", '{"message": "x"}', "file"))


@pytest.mark.parametrize(
    ("pattern", "tables"),
    [
        ("SALES.ORDERS", [ORDERS]),
        ("sales\\.order.*", [ORDERS, LINES]),
        (".*", [ORDERS, LINES, ODD]),
        ('"SALES"."ORDERS"', [ORDERS]),
        ('SALES."ORDERS"', [ORDERS]),
        ('"my s"."a.b ""c"""', [ODD]),
    ],
)
def test_tables_by_regex_or_quoted_name(pattern: str, tables: list[TableId]) -> None:
    assert match_tables(pattern, TABLES) == tables


@pytest.mark.parametrize("pattern", ["ORDERS", "SALES.ORDER", '"sales"."ORDERS"', "X.*"])
def test_pattern_without_a_match_is_refused_with_the_known_tables(pattern: str) -> None:
    with pytest.raises(SignalError, match=r"matches no table.*SALES\.ORDERS"):
        match_tables(pattern, TABLES)


@pytest.mark.parametrize("pattern", ["a{4294967296}", "(" * 3000 + ")" * 3000], ids=["too often", "too deep"])
def test_pattern_that_does_not_compile_is_refused(pattern: str) -> None:
    with pytest.raises(SignalError, match="not a regular expression"):
        match_tables(pattern, TABLES)


def test_first_matching_condition_counts() -> None:
    conditions = [Condition("SALES.ORDERS", "A"), Condition("SALES.*", "B"), Condition('"my s"."a.b ""c"""', "C")]
    assert [condition_of(table, conditions) for table in (ORDERS, LINES, ODD)] == ["A", "B", "C"]
    assert condition_of(TableId("X", "Y"), conditions) == ""


@pytest.mark.parametrize(
    "text",
    ["A = 1", "(A = 1) OR (B = ';')", "A = '--' AND \"x;(\" = 2", "A = 'it''s'", "NOT (A - -1 > 2 / 3 * 4)"],
)
def test_valid_conditions_are_accepted(text: str) -> None:
    check_condition(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A = 1; DROP TABLE T", "holds ';'"),
        ("A = 1 -- x", "holds '--'"),
        ("A = 1 /* x */", r"holds '/\*'"),
        ("A = 1) OR (1 = 1", "parentheses"),
        ("(A = 1", "parentheses"),
        ("A = 'x", "text open"),
        ('"A = 1', "quoted name open"),
    ],
)
def test_conditions_that_would_leave_their_parentheses_are_refused(text: str, words: str) -> None:
    with pytest.raises(SignalError, match=words):
        check_condition(text)


@given(st.text(alphabet="()'\";-/* a", max_size=12))
def test_an_accepted_condition_stays_within_its_parentheses(text: str) -> None:
    try:
        check_condition(text)
    except SignalError:
        return
    bare, quote = "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            bare += character
    while "()" in (bare := bare.replace(" ", "").replace("a", "")) or bare.strip("()"):
        shorter = bare.replace("()", "").replace("*", "").replace("-", "").replace("/", "")
        if shorter == bare:
            break
        bare = shorter
    assert not quote
    assert ";" not in bare
    assert bare == ""


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(\w+[.]?)+!", r"(a+)+", r"(a|b*)*x", r"((a+)){2,}", r"(.*)+", r"(\w+\.?)*!", r"(\w+|\.)*!", r"(\w|\.|.)*!"),
        *(r"(?:\w+\.?){1,40}!", r"(\w+(\.|_)?)*!", r"(\w+_)+T\.X", r"S\.(A|AA)+_OLD", r"(?P<a>\w|.)*?!", r"(?i:\w+)*!"),
        *(".*" * 12, "A?" * 30 + "A{30}", "(A|AA)" * 30, r"(A)?(?(1)A|B*)*C"),
        *(r"([\w.]+)(?#)*!", r"(?x)([\w.]+) +!", r"(?ix: ( [\w.]+ ) + !)"),
    ],
)
def test_expression_that_may_never_end_is_refused(pattern: str) -> None:
    with pytest.raises(SignalError, match="may never end"):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"S\..*",
            r"(S|T)\.(A.*|B+)",
            r"S\.T(_\d{4})?",
            r"S\.T_\d{4}_\d{2}_.*",
            r".*\.ORDERS_.*_.*",
            r"(\w+_){2}T\.X",
        ),
        *(
            "|".join(rf"S\.A{number}.*" for number in range(100)),
            r"S\.[]*)|(]+",
            r"(?i)S\.(?!OLD)\w{1,30}",
            r"S\.A\*\+\(.*",
            r"S\.[**]X[]|)*]*",
        ),
        *(r"S\.(?P<one>A|B)_(?P=one).*", r"S\.A(?#what is|may be*)*", r"S\.(A|B){3}"),
    ],
)
def test_expression_that_ends_is_accepted(pattern: str) -> None:
    check_pattern(pattern)


def test_two_conditions_for_one_data_collection_are_refused() -> None:
    conditions = [{"data-collection": "S.A", "filter": text} for text in ("X = 1", "Y = 2")]
    data = {"data-collections": ["S.A"], "additional-conditions": conditions}
    with pytest.raises(SignalError, match=r"'S\.A' has two conditions"):
        parse(Signal("1", "execute-snapshot", json.dumps(data), "source"))
    data["additional-conditions"] = conditions[:1] * 2
    parse(Signal("1", "execute-snapshot", json.dumps(data), "source"))
