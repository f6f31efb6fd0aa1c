"""Parsing of a configuration file: YAML, JSON or Java properties.

JSON may have `//` comments, and lines of YAML above it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from airflow_provider_db2cdc.config.parsing import TWICE, Mistakes
from airflow_provider_db2cdc.errors import ConfigurationError

NO_YAML = (yaml.YAMLError, ValueError, AttributeError, LookupError)
"""Errors that PyYAML raises: 2026-13-45 is a ValueError, `!!timestamp x` an AttributeError, `!!bool x` a KeyError."""

MERGE = "tag:yaml.org,2002:merge"
STRING_OR_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
JSON_BELOW = re.compile(r"^(?:\{|[ \t]+\{[ \t]*$)", re.MULTILINE)
PROPERTIES_SUFFIX = ".properties"

PROPERTY_LINE = re.compile(r"((?:[^\\\s=:]|\\.)+)[ \t\f]*[=: \t\f]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_text(text: str, file: Path) -> tuple[Mapping[str, Any], Mistakes]:
    """Return the properties of a file's text, and the names that it gives twice with two values.

    :raises ConfigurationError: when the text has none of the forms, or holds no properties.
    """
    twice: Mistakes = {}
    if "\0" in text:
        raise ConfigurationError(f"{file} is not text", "Save it as UTF-8.")
    if file.suffix == PROPERTIES_SUFFIX:
        data: Any = _unique(_property_lines(text), twice)
    elif text.lstrip().startswith(("{", "//", "/*")):
        data = _parse_json(text, file, twice)
    else:
        data = _parse_yaml(text, file, twice)
    if isinstance(data, Mapping):
        return data, twice
    if isinstance(data, str) and "=" in data:
        raise ConfigurationError(f"name {file} with the suffix {PROPERTIES_SUFFIX}: its lines are `name=value`")
    raise ConfigurationError(f"{file} holds no properties", "Write one `name: value` a line.")


def _parse_json(text: str, file: Path, twice: Mistakes) -> Any:
    """Return the data of a JSON text. A text that is not JSON, but YAML in braces, is read as YAML."""
    plain = TRAILING_COMMA.sub(_blanked, STRING_OR_COMMENT.sub(_blanked, text))
    try:
        return json.loads(plain, object_pairs_hook=lambda pairs: _unique(pairs, twice))
    except json.JSONDecodeError as error:
        place, problem = f"line {error.lineno}", error.msg
        if problem == "Extra data":
            problem = "text follows the JSON; write other properties above its '{', or inside"
    twice.clear()
    try:
        return _load_yaml(text.expandtabs(1), twice)
    except NO_YAML:
        raise ConfigurationError(f"{file} is not JSON at {place}: {problem}", "Correct it.") from None


def _blanked(match: re.Match[str]) -> str:
    """Return a string as it is, and a comment as blanks and line ends, so that line numbers stay the same."""
    return match[1] or re.sub(r"[^\n]", " ", match[0])


def _parse_yaml(text: str, file: Path, twice: Mistakes) -> Any:
    """Return the data of a YAML text. A connector's JSON may follow below it."""
    below = JSON_BELOW.search(text)
    if below is None or _is_yaml(text):
        return _read_yaml(text, file, twice)
    head = _read_yaml(text[: below.start()], file, twice)
    lines = "\n" * text.count("\n", 0, below.start())
    connector = _parse_json(lines + text[below.start() :], file, twice)
    if not isinstance(head, Mapping) or not isinstance(connector, Mapping):
        return head or connector
    return _unique([*head.items(), *connector.items()], twice)


def _is_yaml(text: str) -> bool:
    try:
        _load_yaml(text, {})
    except NO_YAML:
        return False
    return True


def _read_yaml(text: str, file: Path, twice: Mistakes) -> Any:
    try:
        return _load_yaml(text, twice)
    except NO_YAML as error:
        if "another document" in str(error):
            raise ConfigurationError(f"leave one document in {file}: it holds several, separated by ---") from None
        place = getattr(error, "problem_mark", None)
        where = f" at line {place.line + 1}" if place else ""
        remedy = "Indent YAML with blanks, not tabs." if "'\\t'" in str(error) else "Correct it."
        raise ConfigurationError(f"{file} is neither YAML nor JSON{where}", remedy) from None


def _load_yaml(text: str, twice: Mistakes) -> Any:
    """Return the data of a YAML text, and note names with two values. PyYAML itself would take the later value."""
    loader = yaml.SafeLoader(text)
    try:
        document = loader.get_single_node()
        if document is None:
            return None
        for name, first, again in list(_given_twice(document)):
            if loader.construct_document(first) != loader.construct_document(again):
                lines = f"lines {first.start_mark.line + 1} and {again.start_mark.line + 1}"
                twice[name] = f"{name}: {TWICE} ({lines})"
        return loader.construct_document(document)
    finally:
        loader.dispose()


def _given_twice(node: yaml.Node, prefix: str = "") -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yield each name that a mapping has twice, with both values. A mapping may override what `<<` merges into it."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if key.tag == MERGE or not isinstance(key, yaml.ScalarNode):
            continue
        name = f"{prefix}{key.value}"
        if name in seen:
            yield name, seen[name], value
        seen[name] = value
        yield from _given_twice(value, f"{name}.")


def _unique(pairs: Iterable[tuple[str, Any]], twice: Mistakes) -> dict[str, Any]:
    """Return pairs as a mapping, and note the names that have two values."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if values.setdefault(name, value) != value:
            twice[name] = f"{name}: {TWICE}"
    return values


def _property_lines(text: str) -> Iterator[tuple[str, str]]:
    r"""Yield the names and values of Java properties. A backslash continues a line or escapes a character.

    As in Java, `\.` is a plain `.`, so a regular expression needs two backslashes.
    """
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*", r"\1", text)
    for line in joined.splitlines():
        stripped = line.lstrip(" \t\f")
        if stripped and stripped[0] not in "#!" and (match := PROPERTY_LINE.match(stripped)):
            yield _unescaped(match[1]), _unescaped(match[2])


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else ESCAPED.get(escape, escape)

    return ESCAPE.sub(character, text)
