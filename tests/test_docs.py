"""The documentation, as far as a program can check it: links, commands, properties and blocks of code."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typer

from airflow_provider_db2cdc.cli.main import app
from airflow_provider_db2cdc.config.properties import ALIASES, PROPERTIES
from airflow_provider_db2cdc.demo.cli import add_to
from airflow_provider_db2cdc.sandbox.cli.main import app as sandbox_app

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
README_WORDS = 500

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
SHELL = ("sh", "bash", "shell", "console")
DOTTED = re.compile(r"[a-z]\w*(?:\.[\w*]+)+(?=[:=]|$)")
"""What may be a property: a whole piece of code, or one with its value."""

NOT_PROPERTIES = {"schema.table", "schema.table.column", "debezium.source.*"}
"""The form of patterns, and what Debezium Server puts before a connector's properties."""

FILES = (".py", ".md", ".json", ".toml", ".yaml", ".sql", ".jar", ".zip", ".log")


@cache
def text_of(page: Path) -> str:
    return page.read_text("utf-8")


@cache
def prose_of(page: Path) -> str:
    """A page without its blocks of code."""
    return BLOCK.sub("", text_of(page))


def blocks_of(page: Path, *languages: str) -> list[str]:
    return [textwrap.dedent(body) for _, language, body in BLOCK.findall(text_of(page)) if language in languages]


def check(found: Callable[[Path], Iterable[str]]) -> None:
    """Fail with all that is found in all pages."""
    offenders = [f"{page.relative_to(ROOT)}: {what}" for page in PAGES for what in found(page)]
    assert not offenders, "\n".join(offenders)


@cache
def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    anchors: set[str] = set()
    for heading in HEADING.findall(prose_of(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(known == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", known) is not None for known in anchors)
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


def is_broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and (target.suffix != ".md" or anchor not in anchors_of(target))


def test_every_relative_link_and_anchor_is_there() -> None:
    def broken(page: Path) -> list[str]:
        links = [link for link in LINK.findall(prose_of(page)) if not re.match(r"[a-z]+:", link)]
        return [link for link in links if is_broken(page, link)]

    check(broken)


def test_every_page_is_linked_from_another() -> None:
    def linked(page: Path) -> set[Path]:
        return {(page.parent / link.partition("#")[0]).resolve() for link in LINK.findall(prose_of(page))} - {page}

    known = {ROOT / "README.md", ROOT / "CHANGELOG.md"}.union(*map(linked, PAGES))
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in known] == []


def commands_in(page: Path, first: str) -> Iterator[str]:
    """The command lines of a page that begin with a word, those in sentences too."""
    for block in blocks_of(page, *SHELL):
        yield from (line for line in map(str.strip, block.splitlines()) if line.startswith(f"{first} "))
    yield from (code for code in CODE.findall(prose_of(page)) if code.startswith(f"{first} "))


def test_every_make_target_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    def unknown(page: Path) -> list[str]:
        return [line for line in commands_in(page, "make") if line.split()[1] not in {*targets, "X"}]

    check(unknown)


@cache
def _command_of_a_clone() -> Any:
    """The command line with the commands that only a clone has."""
    whole = typer.Typer()
    whole.registered_commands, whole.registered_groups = [*app.registered_commands], [*app.registered_groups]
    add_to(whole)
    return typer.main.get_command(whole)


@cache
def _sandbox_command() -> Any:
    return typer.main.get_command(sandbox_app)


def leaf_of(words: Sequence[str]) -> tuple[Any, list[str]]:
    """The command that a line names, and the rest of the line.

    :raises LookupError: there is none of that name.
    """
    found = _command_of_a_clone()
    rest = [word for word in words if word != "--debug"]
    while rest and not rest[0].startswith("-") and hasattr(found, "commands"):
        name, *rest = rest
        found = _sandbox_command() if name == "sandbox" else found.commands[name]
    return found, rest


def mistake_in(line: str, is_whole: bool) -> str:
    """Why the command line refuses a line, or an empty text. A command in a sentence may omit parts."""
    words = shlex.split(line, comments=True)[1:]
    if any(word.startswith(("<", "...")) for word in words):
        return ""
    try:
        command, rest = leaf_of(words)
        if is_whole and not hasattr(command, "commands"):
            command.make_context(command.name, list(rest))
    except Exception as error:  # typer brings a click of its own, whose errors it does not export
        return f"{line}: {type(error).__name__}: {error}"
    flags = {"--help", *(flag for one in command.params for flag in (*one.opts, *one.secondary_opts))}
    unknown = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in flags]
    return f"{line}: no {', '.join(unknown)}" if unknown else ""


def test_every_command_line_is_valid() -> None:
    def wrong(page: Path) -> list[str]:
        whole = {line for block in blocks_of(page, *SHELL) for line in map(str.strip, block.splitlines())}
        lines = commands_in(page, "db2cdc")
        return [mistake for line in lines if (mistake := mistake_in(line, line in whole))]

    check(wrong)


def test_every_json_block_is_json() -> None:
    def parses(text: str) -> bool:
        try:
            json.loads(text)
        except ValueError:
            return False
        return True

    def broken(page: Path) -> list[str]:
        """A block is one document, or one a line."""
        return [
            text for text in blocks_of(page, "json") if not parses(text) and not all(map(parses, text.splitlines()))
        ]

    check(broken)


def test_every_python_block_compiles() -> None:
    def broken(page: Path) -> list[str]:
        found: list[str] = []
        for text in blocks_of(page, "python"):
            try:
                compile(text, str(page), "exec")
            except SyntaxError as error:
                found.append(f"{error}: {text}")
        return found

    check(broken)


def is_known(name: str) -> bool:
    """Whether a name is a property or the end of one, or matches a property with `*` after two words."""
    if name in PROPERTIES or name in ALIASES or any(one.endswith(f".{name}") for one in PROPERTIES):
        return True
    if name.endswith(".*"):
        return any(one.startswith(name[:-1]) for one in PROPERTIES)
    prefixes = [prefix[:-1] for prefix in PROPERTIES if prefix.endswith("*")]
    inner = [prefix for prefix in prefixes if prefix.count(".") > 1 or prefix in ("driver.", "transforms.")]
    return name.startswith(tuple(inner))


def test_every_property_is_known() -> None:
    first = {name.split(".")[0] for name in PROPERTIES if "." in name} - {"spark"}

    def unknown(page: Path) -> list[str]:
        """Spark's own settings look like those of the package."""
        names = [found[0] for code in CODE.findall(prose_of(page)) if (found := DOTTED.match(code))]
        likely = {name for name in names if name.split(".")[0] in first and not name.endswith(FILES)}
        return sorted(name for name in likely - NOT_PROPERTIES if not is_known(name))

    check(unknown)


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").split()) <= README_WORDS
