"""The properties that a configuration gives: found in every spelling, and sorted into used, ignored and wrong ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_db2cdc.config.connector_form import connector_parts, plain_name
from airflow_provider_db2cdc.config.files.placeholder import resolve
from airflow_provider_db2cdc.config.properties import REPLACED, USED, find_property, nearest_names
from airflow_provider_db2cdc.config.property import Property
from airflow_provider_db2cdc.config.transform import is_transform, sort_transforms
from airflow_provider_db2cdc.errors import ConfigurationError

CONNECTOR_CLASS = "io.debezium.connector.db2.Db2Connector"
TWICE = "leave one; it is given twice, and the two contradict each other"
LIST_TOKEN = re.compile(r'"[^"]*"|\\.|\[(?:\\.|[^\]\\])*\]|.', re.DOTALL)
MAPPINGS = {
    spelling for item in USED if item.form == "mapping" for spelling in (item.name, item.name.replace(".", "_"))
}

Mistakes = dict[str, str]
"""The mistakes, by the property's name as it was given. Each text names the property itself."""


@dataclass
class SortedProperties:
    """Given properties: used ones by their full dotted names, ignored ones with the reason, and the mistakes."""

    used: dict[str, tuple[Property, Any]] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    mistakes: Mistakes = field(default_factory=dict)


def split_list(text: str) -> list[str]:
    r"""Split a comma-separated list of patterns.

    A comma in a quoted name, in `{n,m}`, `[,]` or `(a,b)`, or after a backslash does not split.
    """
    parts, depth = [""], 0
    for token in LIST_TOKEN.findall(text):
        depth += (token in "({") - (token in ")}")
        if token == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


def flatten(properties: Mapping[str, Any]) -> tuple[dict[str, Any], Mistakes]:
    """Return properties by their dotted names, and those that two spellings give with two values.

    Names may be nested or dotted, or in any of the forms of a connector (connector_form).
    """
    flat: dict[str, Any] = {}
    mistakes: Mistakes = {}
    for name, value in (pair for part in connector_parts(properties) for pair in _pairs(part)):
        before = flat.setdefault(name, value)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            flat[name] = {**before, **value}
            is_twice = any(_differ(before.get(key, inner), inner) for key, inner in value.items())
        else:
            is_twice = _differ(before, value)
        if is_twice:
            mistakes[name] = f"{name}: {TWICE}"
    return flat, mistakes


def resolve_used(properties: Mapping[str, Any], environ: Mapping[str, str] | None) -> tuple[dict[str, Any], Mistakes]:
    """Return the properties with placeholders resolved, and the mistakes of those that cannot be.

    Ignored properties keep their text, because the password of a Kafka, for one, need not be known here.
    """
    resolved: dict[str, Any] = {}
    mistakes: Mistakes = {}
    for name, value in properties.items():
        item = find_property(name)
        wrong: list[str] = []
        if item is not None and item.kind == "used":
            value, wrong = resolve(value, environ, item.name == "spark.conf")
        if wrong:
            mistakes[name] = "\n".join(f"{name}: {text}" for text in wrong)
        else:
            resolved[name] = value
    return resolved, mistakes


def classify(properties: Mapping[str, Any]) -> SortedProperties:
    """Sort the properties into used, ignored and wrong ones."""
    result = SortedProperties()
    spelled = {_dotted(name): value for name, value in properties.items() if value is not None}
    result.ignored, refused = sort_transforms({name: value for name, value in spelled.items() if is_transform(name)})
    result.mistakes = {name: f"{name}: {reason}" for name, reason in refused.items()}
    for name, value in properties.items():
        newer = REPLACED.get(_dotted(name))
        if newer in spelled:
            result.ignored[name] = f"{newer} is given, and counts instead"
        elif not is_transform(_dotted(name)):
            _sort(name, value, result)
    return result


def refusal(mistakes: Iterable[str]) -> ConfigurationError:
    """Return the error that lists all mistakes, one per line."""
    texts = list(dict.fromkeys(line for mistake in mistakes for line in mistake.split("\n")))
    if len(texts) == 1:
        return ConfigurationError(texts[0])
    lines = "".join(f"\n  - {text}" for text in texts)
    return ConfigurationError(f"correct {len(texts)} mistakes in the configuration:{lines}")


def read_value(item: Property, value: Any) -> Any:
    """Return the value as the property's form wants it: a list is a list, or a text with commas."""
    if item.form != "list" or not (value is None or isinstance(value, Iterable)):
        return value
    return tuple(split_list(value) if isinstance(value, str) else value or ())


def _sort(name: str, value: Any, result: SortedProperties) -> None:
    item = find_property(name)
    if item is None:
        result.mistakes[name] = f"{name}: {_unknown(name)}"
    elif name == "connector.class" and value != CONNECTOR_CLASS:
        result.mistakes[name] = f"{name}: only {CONNECTOR_CLASS} is understood; this is another connector's"
    elif item.kind == "ignored":
        result.ignored[name] = item.text
    elif item.kind == "refused" and str("" if value is None else value).strip().lower() not in item.accepts:
        result.mistakes[name] = f"{name} is not supported: {item.text}"
    elif item.kind == "used" and value is not None:
        full = f"{item.name[:-1]}{name[len(item.name) - 1 :]}" if item.name.endswith("*") else item.name
        if _differ(result.used.get(full, (item, value))[1], value):
            result.mistakes[name] = f"{name}: leave one; it contradicts another spelling of {full}"
        result.used[full] = (item, value)


def _unknown(name: str) -> str:
    """Return the text on an unknown name, with similar names if there are any."""
    near = nearest_names(name)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{hint}It is not a property of this provider or of Debezium's Db2 connector"


def _dotted(name: str) -> str:
    """Return the dotted spelling of a name that may be in snake_case."""
    return name if "." in name else name.replace("_", ".")


def _differ(first: Any, second: Any) -> bool:
    """Whether two values are not the same. A NaN does not equal itself, so identity counts first."""
    return first is not second and bool(first != second)


def _pairs(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in properties.items():
        full = plain_name(f"{prefix}{name}")
        outer = next((mapping for mapping in MAPPINGS if full.startswith(f"{mapping}.")), None)
        if outer is not None:
            yield outer, {full.removeprefix(f"{outer}."): value}
        elif isinstance(value, Mapping) and full not in MAPPINGS:
            yield from _pairs(value, f"{full}.")
        else:
            yield full, value
