"""What a configuration gives: properties by their names, in every spelling, and what each of them means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.properties import USED, find_property, nearest_names
from airflow_provider_db2cdc.property import Property

CONNECTOR_CLASS = "io.debezium.connector.db2.Db2Connector"
MAPPINGS = {
    spelling for item in USED if item.form == "mapping" for spelling in (item.name, item.name.replace(".", "_"))
}


def split_list(text: str) -> list[str]:
    r"""Split a comma-separated list of regexes; commas in `{n,m}`, `[,]`, `(a,b)` or after a backslash stay."""
    parts, depth, in_class, escaped = [""], 0, False, False
    for character in text:
        opens = not escaped and not in_class and character in "({"
        closes = not escaped and not in_class and character in ")}"
        depth += opens - closes
        if character == "," and not escaped and not in_class and depth <= 0:
            parts.append("")
            continue
        in_class = in_class or (character == "[" and not escaped)
        in_class = in_class and not (character == "]" and not escaped)
        escaped = character == "\\" and not escaped
        parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def flatten(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties by their dotted names, whether they are nested or not, or a connector's JSON as it is.

    :raises ConfigurationError: one is given in two of these forms, and they contradict each other.
    """
    flat: dict[str, Any] = {}
    contradicting = []
    for name, value in (pair for part in _parts(properties) for pair in _pairs(part)):
        if _differ(flat.setdefault(name, value), value):
            contradicting.append(f"{name} is given twice, and the two contradict each other")
    if contradicting:
        raise ConfigurationError("; ".join(contradicting), "Leave one.")
    return flat


def sort_given(properties: Mapping[str, Any]) -> tuple[dict[str, tuple[Property, Any]], dict[str, str], list[str]]:
    """Return what is used, by its full dotted name, what is ignored and why, and what is wrong."""
    used: dict[str, tuple[Property, Any]] = {}
    ignored: dict[str, str] = {}
    problems: list[str] = []
    for name, value in properties.items():
        item = find_property(name)
        if item is None:
            near = nearest_names(name)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            problems.append(f"{name} is not a property of this provider or of Debezium's Db2 connector{hint}")
        elif name == "connector.class" and value != CONNECTOR_CLASS:
            problems.append(f"connector.class is another connector's: only {CONNECTOR_CLASS} is understood")
        elif item.kind == "ignored":
            ignored[name] = item.text
        elif item.kind == "refused" and str("" if value is None else value).strip().lower() not in item.accepts:
            problems.append(f"{name} is not supported: {item.text}")
        elif item.kind == "used" and not (name == "name" and "pipeline" in properties):
            full = f"{item.name[:-1]}{name[len(item.name) - 1 :]}" if item.name.endswith("*") else item.name
            if _differ(used.get(full, (item, value))[1], value):
                problems.append(f"{name} and another spelling of {full} contradict each other")
            used[full] = (item, value)
    return used, ignored, problems


def read_value(item: Property, value: Any) -> Any:
    """Return the value as the property's form wants it: a list is a list, or a text with commas."""
    if item.form != "list" or not (value is None or isinstance(value, Iterable)):
        return value
    return tuple(split_list(value) if isinstance(value, str) else map(str, value or ()))


def _differ(one: Any, other: Any) -> bool:
    """Whether two values are not the same; a NaN does not even equal itself."""
    return one is not other and bool(one != other)


def _parts(properties: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the inside of a connector's `{"name": ..., "config": {...}}`, and what stands beside it."""
    inner = properties.get("config")
    if not isinstance(inner, Mapping):
        return (properties,)
    return inner, {name: value for name, value in properties.items() if name != "config"}


def _pairs(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in properties.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping) and full not in MAPPINGS:
            yield from _pairs(value, f"{full}.")
        else:
            yield full, value
