"""Messages for pydantic's errors in a configuration, under the names of its properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from airflow_provider_db2cdc.config.parsing import Mistakes
from airflow_provider_db2cdc.config.properties import USED
from airflow_provider_db2cdc.errors import ConfigurationError

NAMES = {item.field: item.name for item in USED}
VARIABLES = {item.name: item.default.removeprefix("$") for item in USED if item.default.startswith("$")}
OTHERS_WORDS = {"never": "no_data"}
"""Values of Debezium's other connectors, and the value of its Db2 connector for each."""

READ_AS = ((bool, "a boolean"), (int | float, "a number"), (date, "a date"), (type(None), "nothing"))
MISSING = {
    "pipeline": "give a pipeline: a name of letters, digits, '.', '_' and '-'",
    "target": "give a target: a path, or a catalog's schema like main.sales",
}
NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class PropertyError(ConfigurationError, ValueError):
    """Raised when a property is refused during validation. It names the property. Pydantic collects ValueErrors."""


def explain(error: ValidationError) -> Mistakes:
    """Return the mistakes by the property's name, with '' for several together.

    No text shows a value, except the name of a pipeline.
    """
    mistakes: Mistakes = {}
    for problem in error.errors(include_url=False):
        name = _property_of(problem["loc"])
        text = _text(name, problem["type"], problem)
        mistakes[name] = f"{mistakes[name]}\n{text}" if name in mistakes else text
    return mistakes


def _text(name: str, kind: str, problem: Mapping[str, Any]) -> str:
    value, context = problem["input"], problem.get("ctx", {})
    match kind:
        case "missing":
            return _missing(name)
        case "literal_error":
            return f"{name}: write one of {context['expected']}{_hint(value, context['expected'])}"
        case "string_pattern_mismatch":
            example = NO_NAME.sub("_", value).strip("_") or "sales"
            return f"{MISSING['pipeline']}, for example {example}; {value!r} is not a pipeline's name"
        case "value_error" if isinstance(context["error"], PropertyError):
            return str(context["error"])
        case "value_error":
            return f"{name}: {context['error']}"
        case "string_type":
            return f"{name}: {_quote(value)}"
        case _:
            return f"{name}: {problem['msg']}"


def _missing(name: str) -> str:
    variable = VARIABLES.get(name)
    return f"{name} is missing: {MISSING.get(name, 'give it')}{f', or set {variable}' if variable else ''}"


def _quote(value: Any) -> str:
    """Return the remedy for a value that is not a text. YAML reads NO as a boolean, and 0123 as 83."""
    read = next((words for kind, words in READ_AS if isinstance(value, kind)), "")
    return f"put the value in quotes; it is read as {read}" if read else "give a text"


def _hint(value: Any, expected: str) -> str:
    words = [word for word in expected.split("'") if word.strip() not in ("", ",", "or")]
    text = str(value)
    near = OTHERS_WORDS.get(text) or next(iter(get_close_matches(text, words, n=1, cutoff=0.7)), None)
    return f"; did you mean {near}?" if near in words else ""


def _property_of(place: tuple[int | str, ...]) -> str:
    """Return the property that fills a field of the configuration.

    For a property with `*`, the name includes the key below the field.
    """
    for size in range(len(place), 0, -1):
        field = ".".join(map(str, place[:size]))
        if field in NAMES:
            inside = [str(part) for part in place[size:] if not isinstance(part, int)]
            return ".".join([NAMES[field].removesuffix(".*"), *inside])
    return ".".join(map(str, place))
