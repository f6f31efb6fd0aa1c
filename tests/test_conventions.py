"""The project's conventions, as far as a program can check them."""

import ast
import dataclasses
import importlib
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import pytest

import airflow_provider_db2cdc as package
from airflow_provider_db2cdc import errors

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_provider_db2cdc"
MODULE_LINES, FUNCTION_LINES = 300, 40
SCRIPT_LINES, DAG_LINES = 60, 100
TEST_NAME_LENGTH = 70

BANNED_NAMES = {"util", "utils", "common", "commons", "helper", "helpers", "manager", "misc", "data", "process"}

Node = TypeVar("Node", bound=ast.AST)

MODULES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted((ROOT / "spark_jobs").glob("*.py"))
DAGS = sorted((ROOT / "dags").rglob("*.py"))
SUPPORT = sorted((ROOT / "tests" / "support").glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ALL = [*MODULES, *SCRIPTS, *DAGS]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def nodes_of(path: Path, kind: type[Node]) -> list[Node]:
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, kind)]


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def offenders(paths: Iterable[Path], found: Callable[[Path], object]) -> dict[str, object]:
    """Return what is found in those modules in which something is."""
    return {name_of(path): what for path in paths if (what := found(path))}


def test_the_modules_are_found() -> None:
    assert len(MODULES) > 40
    assert SCRIPTS


def test_a_module_has_at_most_300_lines() -> None:
    def lines(path: Path) -> int:
        count = len(path.read_text("utf-8").splitlines())
        return count if count > MODULE_LINES else 0

    assert offenders([*ALL, *SUPPORT], lines) == {}


def test_a_function_has_at_most_40_lines() -> None:
    def long(path: Path) -> list[str]:
        return [node.name for node in functions_of(path) if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES]

    assert offenders([*ALL, *SUPPORT], long) == {}


def test_a_test_has_a_name_of_at_most_70_characters() -> None:
    def long(path: Path) -> list[str]:
        names = [node.name for node in functions_of(path) if node.name.startswith("test_")]
        return [name for name in names if len(name) > TEST_NAME_LENGTH]

    assert offenders(TESTS, long) == {}


def test_a_module_is_named_by_its_noun() -> None:
    def banned(path: Path) -> set[str]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        return BANNED_NAMES & {word for part in parts for word in part.lower().split("_")}

    assert offenders([*ALL, *SUPPORT], banned) == {}


def test_an_entry_script_is_thin() -> None:
    assert {name_of(path) for path in SCRIPTS if len(path.read_text("utf-8").splitlines()) > SCRIPT_LINES} == set()


def test_a_dag_is_wiring_only() -> None:
    assert {name_of(path) for path in DAGS if len(path.read_text("utf-8").splitlines()) > DAG_LINES} == set()


def test_a_module_with_code_has_a_docstring() -> None:
    assert offenders(ALL, lambda path: tree_of(path).body and not ast.get_docstring(tree_of(path))) == {}


def test_no_module_prints() -> None:
    def prints(path: Path) -> list[int]:
        return [call.lineno for call in nodes_of(path, ast.Call) if ast.unparse(call.func) == "print"]

    assert offenders([path for path in (*MODULES, *SCRIPTS) if path.parent.name != "cli"], prints) == {}


def test_no_error_is_swallowed_in_silence() -> None:
    def silent(path: Path) -> list[int]:
        handlers = nodes_of(path, ast.ExceptHandler)
        broad = [one for one in handlers if one.type and ast.unparse(one.type) in ("Exception", "BaseException")]
        passing = [one.lineno for one in broad if all(isinstance(step, ast.Pass) for step in one.body)]
        return passing + [one.lineno for one in handlers if one.type is None]

    assert offenders(ALL, silent) == {}


def is_private(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"_[^_].*", name.rpartition(".")[2]) is not None


def patched(node: ast.AST) -> list[object]:
    """Return the names that a statement or call sets on an object other than self."""
    match node:
        case ast.Call(func=ast.Name(id="setattr" | "delattr") | ast.Attribute(attr="setattr" | "delattr")):
            return [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
        case ast.Attribute(value=owner, attr=name, ctx=ast.Store() | ast.Del()):
            return [] if ast.unparse(owner) in ("self", "cls") else [name]
    return []


def test_no_test_patches_a_private_name() -> None:
    """It would break with each change of how the package does it: a failpoint is for that."""

    def private(path: Path) -> list[object]:
        return [name for node in ast.walk(tree_of(path)) for name in patched(node) if is_private(name)]

    assert offenders(TESTS, private) == {}


def test_patches_of_private_names_are_found() -> None:
    source = """
monkeypatch.setattr(Groups, "_await", wait)
monkeypatch.setattr("a.b._rows", wait)
monkeypatch.delattr(fold, "_kinds")
channel._consumer = moving
pace.GROUP_S = one.__dict__ = 1
monkeypatch.setattr(pace, "GROUP_S", 1)
self._own = 1
"""
    names = [str(name) for node in ast.walk(ast.parse(source)) for name in patched(node) if is_private(name)]
    assert sorted(names) == ["_await", "_consumer", "_kinds", "a.b._rows"]


def test_no_todo_remains_and_no_machine_is_named() -> None:
    unwanted = re.compile(r"\b(?:TODO|FIXME|XXX)\b|(?<![\w.])/(?:work|home|root|Users)/\w+")
    assert offenders(ALL, lambda path: unwanted.findall(path.read_text("utf-8"))) == {}


def texts_of(path: Path) -> list[str]:
    """Return a module's texts, what is filled in as `{}`, and without docstrings."""
    joined = nodes_of(path, ast.JoinedStr)
    known = {id(part) for node in joined for part in node.values}
    known |= {id(node.value) for node in nodes_of(path, ast.Expr)}
    plain = [node.value for node in nodes_of(path, ast.Constant) if id(node) not in known]
    filled = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values) for node in joined
    ]
    return [*filled, *(value for value in plain if isinstance(value, str))]


def test_a_statement_that_changes_rows_has_a_where_clause() -> None:
    """A person pastes a remedy's SQL as it stands: without WHERE it would change every row."""
    changing = re.compile(r"\bUPDATE\s+\S+\s+SET\b|\bDELETE\s+FROM\b|\bset\s+STATE\b", re.IGNORECASE)

    def unlimited(path: Path) -> list[str]:
        return [text for text in texts_of(path) if changing.search(text) and " WHERE " not in text]

    assert offenders([path for path in MODULES if not {"sandbox", "demo"} & {*path.parts}], unlimited) == {}


def modules_of(part: str) -> list[ModuleType]:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in MODULES]
    inside = [name for name in names if name.split(".")[1] == part and not name.endswith("__init__")]
    return [importlib.import_module(name) for name in inside]


@pytest.mark.parametrize("part", ["cdc", "sql"])
def test_the_pure_parts_values_never_change(part: str) -> None:
    found = {
        value
        for module in modules_of(part)
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value)
    }
    assert found
    assert [kind.__name__ for kind in found if not cast("Any", kind).__dataclass_params__.frozen] == []


ERRORS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


def test_every_public_name_of_errors_is_exported_and_exists() -> None:
    assert sorted(errors.__all__) == sorted(kind.__name__ for kind in ERRORS)
    assert list(errors.__all__) == sorted(errors.__all__)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_has_its_place_in_the_tree_of_the_docstring(kind: type[errors.Db2CdcError]) -> None:
    drawn = {match[2]: len(match[1]) for match in re.finditer(r"^([ │├└─]*)(\w+Error)\b", errors.__doc__, re.M)}
    assert issubclass(kind, errors.Db2CdcError)
    depth = kind.__mro__.index(errors.Db2CdcError)
    assert drawn[kind.__name__] - drawn["Db2CdcError"] == 4 * depth
    above = [name for name in list(drawn)[: list(drawn).index(kind.__name__)] if drawn[name] < drawn[kind.__name__]]
    assert depth == 0 or above[-1] == kind.__mro__[1].__name__
    assert depth == 0 or (kind.__doc__ or "").startswith(("Raised when ", "Raised at "))


def test_an_errors_text_ends_with_its_remedy() -> None:
    error = errors.Db2CdcError("it broke", "Mend it.")
    assert str(error) == "it broke. Mend it."
    assert (error.problem, error.remedy) == ("it broke", "Mend it.")
    assert str(errors.Db2CdcError("it broke")) == "it broke"


def test_an_error_class_elsewhere_extends_a_public_error() -> None:
    """The sandbox is a stand-in for Db2: its errors are not the provider's."""

    def foreign(path: Path) -> list[str]:
        classes = [node for node in nodes_of(path, ast.ClassDef) if node.name.endswith("Error")]
        return [node.name for node in classes if ast.unparse(node.bases[0]) not in errors.__all__]

    known = [path for path in MODULES if path.name != "errors.py" and path.parent.name != "sandbox"]
    assert offenders(known, foreign) == {}


def test_the_package_exports_existing_names() -> None:
    assert sorted(package.__all__) == sorted([*package._MODULES, "__version__"])
    for name, module in package._MODULES.items():
        body = tree_of(PACKAGE / f"{module.replace('.', '/')}.py").body
        assert name in {getattr(node, "name", None) for node in body}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = package.Nothing


OLD_WORDS = re.compile(
    r"\b(Agenda|Slice|Effects|Compared|Extent|Standing|Share|Book|Ledger|Backlog|TickLostError|UnkeptError|"
    r"believed|set_back|begun_batch|stands_still|restart_of|command_of|is_overtaken|telling_applied)\b"
)
"""Names from before the glossary. docs/glossary.md has the words of today."""


def test_the_glossarys_old_words_stay_out() -> None:
    assert offenders(ALL, lambda path: sorted({*OLD_WORDS.findall(path.read_text("utf-8"))})) == {}


def test_a_folder_has_at_most_12_modules() -> None:
    """A person finds a module by its folder: more than a dozen names are not read any more."""
    folders = {path.parent for path in MODULES}
    counts = {name_of(folder): len([*folder.glob("[!_]*.py")]) for folder in folders}
    assert {name: count for name, count in counts.items() if count > 12} == {}
