"""The arrows between the parts: errors <- cdc <- sql <- {source, spark, airflow edge}; nothing points back.

Each is proven twice: by what every module's source imports, even inside functions, and by importing the modules in a
process where everything they must not need cannot be imported.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAME = "airflow_provider_db2cdc"
PACKAGE = ROOT / NAME

WITHIN = {
    "errors": set(),
    "failpoint": set(),
    "version": set(),
    "cdc": {"errors", "cdc"},
    "sql": {"errors", "cdc", "sql"},
    "source": {"errors", "cdc", "sql", "config.pipeline", "source"},
    "tick": {"errors", "cdc", "sql", "tick"},
    "verify": {"errors", "cdc", "sql", "tick", "verify"},
    "spark": {"errors", "cdc", "sql", "tick", "verify", "version", "spark"},
    "read": {"errors", "cdc", "spark", "read"},
    "config.property": set(),
    "config.debezium_properties": {"config.property"},
    "config.job_properties": {"config.property"},
    "config.properties": {"config.property", "config.debezium_properties", "config.job_properties"},
    "config.files.placeholder": set(),
    "config.transform": set(),
    "config.connector_form": set(),
    "config.parsing": {
        "errors",
        "config.property",
        "config.debezium_properties",
        "config.job_properties",
        "config.properties",
        "config.files.placeholder",
        "config.transform",
        "config.connector_form",
    },
    "config.values": set(),
    "config.validation_message": {"errors", "config.parsing", "config.properties"},
    "config.property_check": {"errors", "cdc", "config.validation_message"},
    "import_path": {"errors"},
    "config.custom_mode": {"errors", "cdc", "import_path"},
    "config.pipeline": {
        "errors",
        "cdc",
        "config.parsing",
        "config.custom_mode",
        "import_path",
        "config.properties",
        "config.property_check",
        "config.values",
        "config.validation_message",
    },
    "config.files.text": {"errors", "config.parsing"},
    "config.files.load": {
        "errors",
        "cdc",
        "config.pipeline",
        "config.files.text",
        "config.parsing",
        "config.properties",
    },
    "channels": {"errors", "cdc", "config.pipeline", "import_path", "channels"},
    "offsets.commit": {"errors", "cdc"},
    "get_provider_info": {"version"},
}
"""What these parts may import of the package, besides LEAVES."""

LEAVES = {"failpoint"}
"""What every part may import."""

PURE = {
    "errors", "failpoint", "version", "cdc", "sql", "tick", "verify", "config.property", "config.debezium_properties",
    "config.job_properties", "config.properties", "config.parsing",
    "config.files.placeholder", "config.transform", "config.connector_form",
    "import_path", "offsets.commit", "get_provider_info",
}  # fmt: skip
PACKAGES = {"version", "config", "offsets"}
"""What is loaded on the way to a part."""

WITHOUT_AIRFLOW = {*WITHIN, "config", "offsets.file", "submit", "cli", "sandbox"}
ONLY_IN = {
    "pyspark": {"spark", "read", "submit", "demo"},
    "delta": {"spark"},
    "ibm_db": {"source", "sandbox"},
    "ibm_db_dbi": {"source", "sandbox"},
    "confluent_kafka": {"channels"},
    f"{NAME}.spark": {"spark", "read"},
    f"{NAME}.read": {"read"},
    f"{NAME}.sandbox": {"sandbox", "demo"},
}
"""What none but these parts may import."""
NOT_SHIPPED = {"sandbox", "demo"}
"""Test equipment, which the wheel leaves out."""


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """Return the part that a file belongs to; the package's own __init__ is one of its own."""
    return part_named(".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"))


def part_named(name: str) -> str:
    """Return the part of a dotted name within the package: the longest one declared, else its first word."""
    words = name.split(".")
    prefixes = (".".join(words[:length]) for length in range(len(words), 0, -1))
    return next((prefix for prefix in prefixes if prefix in WITHIN), words[0])


def imported(source: str) -> Iterator[str]:
    """Yield the dotted names that a source imports, wherever it does."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=0):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom():
                yield "." * node.level + (node.module or "")
            case ast.Call(func=ast.Name(id="__import__" | "import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name


@cache
def imports() -> list[tuple[Path, str, str]]:
    """Return file, part and imported name of every import of the package."""
    return [(path, part_of(path), name) for path in sources() for name in imported(path.read_text("utf-8"))]


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_imports_are_found_in_every_form() -> None:
    source = """
import a.b, c as d
from e import f as g, h
from . import k
def late():
    from i.j import l
    return importlib.import_module("m.n"), __import__("o"), import_module("p")
"""
    assert {*imported(source)} == {"a.b", "c", "e.f", "e.h", ".", "i.j.l", "m.n", "o", "p"}


def test_the_modules_are_found() -> None:
    assert {"cdc", "sql", "source", "spark", "submit"} <= {part_of(path) for path in sources()}
    assert len(imports()) > 200


def test_imports_are_absolute() -> None:
    assert [(str(path), name) for path, _, name in imports() if name.startswith(".")] == []


@pytest.mark.parametrize("part", WITHIN)
def test_a_part_imports_only_the_parts_before_it(part: str) -> None:
    wrong = [
        (str(path.relative_to(ROOT)), name)
        for path, own, name in imports()
        if own == part and is_in(name, NAME) and part_named(name.removeprefix(f"{NAME}.")) not in WITHIN[part] | LEAVES
    ]
    assert wrong == []


@pytest.mark.parametrize("part", sorted(PURE))
def test_a_pure_part_imports_only_the_standard_library_and_the_package(part: str) -> None:
    known = sys.stdlib_module_names | {NAME}
    wrong = [(path.name, name) for path, own, name in imports() if own == part and name.split(".")[0] not in known]
    assert wrong == []


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_package_is_imported_only_by_its_parts(package: str) -> None:
    wrong = [
        (str(path.relative_to(ROOT)), name)
        for path, own, name in imports()
        if is_in(name, package) and own not in ONLY_IN[package]
    ]
    assert wrong == []


def test_shipped_code_imports_test_equipment_at_one_guarded_place() -> None:
    scripts = [path for folder in ("spark_jobs", "dags") for path in sorted((ROOT / folder).rglob("*.py"))]
    shipped = [(path, name) for path, own, name in imports() if own not in NOT_SHIPPED]
    shipped += [(path, name) for path in scripts for name in imported(path.read_text("utf-8"))]
    found = [
        (path.relative_to(ROOT).as_posix(), name)
        for path, name in shipped
        if any(is_in(name, f"{NAME}.{part}") for part in NOT_SHIPPED)
    ]
    assert found == [(f"{NAME}/cli/main.py", f"{NAME}.demo.cli")]


@pytest.mark.parametrize("part", sorted(WITHOUT_AIRFLOW))
def test_the_part_does_not_import_airflow(part: str) -> None:
    wrong = [(path.name, name) for path, own, name in imports() if own == part and is_in(name, "airflow")]
    assert wrong == []


GATE = """
import sys
sys.path.insert(0, {root!r})
class Gate:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if {closed}:
            raise ImportError("closed for this test: " + name)
sys.meta_path.insert(0, Gate())
import importlib
for module in {modules!r}:
    importlib.import_module(module)
print("LOADED", *sorted(name for name in sys.modules if name.split(".")[0] == {package!r}))
"""


def modules_of(*parts: str) -> list[str]:
    """Return the dotted names of the modules of some parts, except `__main__`, which runs when it is imported."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sources()
        if part_of(path) in parts and path.name != "__main__.py"
    ]
    assert names
    return names


def import_behind_gate(modules: Iterable[str], closed: str, *options: str, home: Path | None = None) -> set[str]:
    """Import modules where `closed`, a condition on `top`, holds for nothing; return the package's parts that came."""
    code = GATE.format(root=str(ROOT), closed=closed, modules=[*modules], package=NAME)
    environ = {**os.environ, **({"AIRFLOW_HOME": str(home)} if home else {})}
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=120, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = next(line for line in done.stdout.splitlines() if line.startswith("LOADED")).split()[1:]
    return {part_named(name.removeprefix(f"{NAME}.")) for name in loaded if "." in name}


def test_the_gate_closes() -> None:
    with pytest.raises(AssertionError, match="closed for this test: pyspark"):
        import_behind_gate([f"{NAME}.spark.events.net_effect"], "top == 'pyspark'")


@pytest.mark.parametrize("part", sorted(PURE))
def test_a_pure_part_loads_with_only_the_standard_library(part: str) -> None:
    closed = f"top != {NAME!r} and top not in sys.stdlib_module_names"
    came = import_behind_gate(modules_of(part), closed, "-I", "-S")
    assert came - PACKAGES <= WITHIN[part] | LEAVES | {part}, "the package itself loads its version and nothing else"


@pytest.mark.parametrize("part", ["spark", "read"])
def test_the_spark_side_loads_without_airflow_ibm_db_and_pydantic(part: str) -> None:
    closed = "top in ('airflow', 'ibm_db', 'ibm_db_dbi', 'pydantic', 'yaml', 'typer', 'rich', 'pendulum', 'attrs')"
    assert import_behind_gate(modules_of(part), closed) <= WITHIN["spark"] | LEAVES | {part}


def test_channels_load_without_a_kafka_client() -> None:
    assert "channels" in import_behind_gate(modules_of("channels"), "top == 'confluent_kafka'")


def test_the_other_parts_load_without_spark_and_airflow() -> None:
    parts = {part_of(path) for path in sources()} & (WITHOUT_AIRFLOW - {"spark", "read"})
    came = import_behind_gate(modules_of(*parts), "top in ('pyspark', 'delta', 'airflow')")
    assert "spark" not in came


@pytest.mark.airflow
def test_the_airflow_edge_loads_without_spark(tmp_path: Path) -> None:
    parts = {part_of(path) for path in sources()} - WITHOUT_AIRFLOW
    came = import_behind_gate(modules_of(*parts), "top in ('pyspark', 'delta')", home=tmp_path)
    assert "spark" not in came
