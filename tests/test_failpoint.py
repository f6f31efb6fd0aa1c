"""Failpoints: what a test can do at them. Each is declared in one place, exists once, and is used."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Literal, cast, get_args

import pytest
from support.crash import Killed, dying, killed
from support.writing import after_each, once_before

from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, failpoint, failpoint_action

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "airflow_provider_db2cdc"
DECLARED = get_args(Failpoint)


class Adder:
    def __init__(self) -> None:
        self.calls: list[int] = []

    @failpoint("fill_state")
    def add(self, one: int, other: int = 2) -> int:
        """Add two numbers."""
        self.calls.append(one)
        if one < 0:
            raise ValueError("negative")
        return one + other


def test_an_inactive_failpoint_only_calls() -> None:
    assert Adder().add(1) == 3
    assert (Adder.add.__name__, Adder.add.__doc__) == ("add", "Add two numbers.")


def test_actions_get_the_arguments_by_name_and_the_result() -> None:
    adder, seen = Adder(), list[ReachedFailpoint]()
    with failpoint_action("fill_state", before=seen.append, after=seen.append):
        assert adder.add(1, other=4) == 5
    arguments = {"self": adder, "one": 1, "other": 4}
    assert seen == [
        ReachedFailpoint("fill_state", "before", arguments),
        ReachedFailpoint("fill_state", "after", arguments, 5),
    ]


def test_an_action_acts_only_in_its_block_and_at_its_failpoint() -> None:
    seen: list[ReachedFailpoint] = []
    with failpoint_action("merge_state", before=seen.append, after=seen.append):
        Adder().add(1)
    with failpoint_action("fill_state", before=seen.append), pytest.raises(ValueError, match="negative"):
        Adder().add(-1)
    Adder().add(1)
    assert [reached.when for reached in seen] == ["before"]


def test_an_action_that_raises_before_the_call_prevents_it() -> None:
    def fail(_: ReachedFailpoint) -> None:
        raise OSError("the disk is full")

    adder = Adder()
    with failpoint_action("fill_state", before=fail), pytest.raises(OSError, match="full"):
        adder.add(1)
    assert adder.calls == []
    with failpoint_action("fill_state", after=fail), pytest.raises(OSError, match="full"):
        adder.add(2)
    assert adder.calls == [2]


def test_a_failpoint_is_not_reached_after_a_call_that_fails() -> None:
    seen: list[ReachedFailpoint] = []
    with failpoint_action("fill_state", after=seen.append), pytest.raises(ValueError, match="negative"):
        Adder().add(-1)
    assert seen == []


def test_actions_of_one_failpoint_nest() -> None:
    seen: list[str] = []

    def noted(name: str) -> AbstractContextManager[None]:
        def note(reached: ReachedFailpoint) -> None:
            seen.append(f"{reached.when} {name}")

        return failpoint_action("fill_state", before=note, after=note)

    with noted("outer"), noted("inner"):
        Adder().add(1)
    assert seen == ["before inner", "before outer", "after outer", "after inner"]


def test_an_action_that_ends_first_leaves_the_others_active() -> None:
    seen: list[str] = []
    with ExitStack() as first:
        first.enter_context(failpoint_action("fill_state", before=lambda _: seen.append("first")))
        with failpoint_action("fill_state", before=lambda _: seen.append("second")):
            first.close()
            Adder().add(1)
    assert seen == ["second"]


def test_actions_act_in_each_thread() -> None:
    seen: list[int] = []
    with (
        ThreadPoolExecutor(4) as pool,
        failpoint_action("fill_state", after=lambda reached: seen.append(reached.arguments["one"])),
    ):
        assert [*pool.map(Adder().add, range(100))] == [*range(2, 102)]
    assert sorted(seen) == [*range(100)]


def test_a_failpoint_that_is_not_declared_is_refused() -> None:
    unknown = cast("Failpoint", "fil_state")
    with pytest.raises(ValueError, match="no failpoint 'fil_state'"), failpoint_action(unknown):
        pass


@pytest.mark.parametrize(("when", "calls"), [("before", [1]), ("after", [1, 2])])
def test_a_process_dies_at_the_call_that_is_named(when: Literal["before", "after"], calls: list[int]) -> None:
    adder = Adder()
    with killed("fill_state", when, at=2):
        adder.add(1)
        adder.add(2)
        adder.add(3)
    assert adder.calls == calls


def test_a_death_that_never_comes_fails_its_test() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"), killed("fill_state", "before", at=2):
        Adder().add(1)
    with pytest.raises(AssertionError, match="never reached fill_state 2 times"), killed("fill_state", "before", at=2):
        raise Killed("elsewhere")
    with dying("fill_state", "before", at=2) as reached:
        Adder().add(1)
    assert len(reached) == 1


def test_once_before_acts_once_and_after_each_numbers_each_call() -> None:
    seen: list[object] = []
    with once_before("fill_state", lambda: seen.append("once")), after_each("fill_state", seen.append):
        Adder().add(1)
        Adder().add(1)
    assert seen == ["once", 1, 2]


def declared_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield failpoint and function of each declaration."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "failpoint":
                yield ast.literal_eval(call.args[0]), node.name


def texts_in(path: Path) -> set[object]:
    return {node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)}


def test_each_failpoint_surrounds_one_function_of_the_package() -> None:
    """Or around what implements one method in several ways."""
    functions: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for point, function in declared_in(path):
            functions[point].add(function)
    assert sorted(functions) == sorted(DECLARED)
    assert len({*DECLARED}) == len(DECLARED)
    assert {point: found for point, found in functions.items() if len(found) > 1} == {}


def test_each_failpoint_is_used_by_a_test() -> None:
    used = {text for path in TESTS.rglob("*.py") if path != Path(__file__) for text in texts_in(path)}
    assert [point for point in DECLARED if point not in used] == []


def test_nothing_in_the_package_activates_a_failpoint() -> None:
    own = PACKAGE / "failpoint.py"
    assert [path for path in PACKAGE.rglob("*.py") if "failpoint_action" in path.read_text("utf-8")] == [own]
    nodes = [
        node for node in ast.walk(ast.parse(own.read_text("utf-8"))) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not {"os", "sys", "environ"} & {alias.name for node in nodes for alias in node.names}
