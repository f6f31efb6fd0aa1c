"""Placeholders in values: `${env:NAME}` stands for an environment variable, and any other form is a mistake.

Kafka Connect resolves `${file:...}` and `${vault:...}` by its config providers. This package does not. Such a text
would be sent to Db2 as the password, and wrong logins lock an account.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

PLACEHOLDER = re.compile(r"\$\{(?P<word>[A-Za-z_][\w.-]*)(?::(?P<rest>[^}]*)\}?|\})")
"""`${word}` and `${word:...}`. A `${` before anything else, as in the expression `T${1}`, is plain text."""

VARIABLE = re.compile(r"\w+", re.ASCII)

FILE_REMEDY = "write ${env:NAME}, or in Airflow keep a login in the connection"
DAG_REMEDY = "give the value or a template, or keep a login in Airflow's connection"


def resolve(value: Any, environ: Mapping[str, str] | None, for_spark: bool = False) -> tuple[Any, list[str]]:
    """Return a property's value with each `${env:NAME}` replaced, and the mistakes of other placeholders.

    Texts inside lists and mappings are resolved too. Without `environ`, `${env:NAME}` is a mistake like the others.
    In settings `for_spark`, `${name}` and `${system:name}` stay, because Spark and Hadoop resolve them. No mistake
    shows more of a placeholder than its first word.
    """
    mistakes: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        word, rest = match["word"], match["rest"]
        if for_spark and word != "env" and (rest is None or word == "system"):
            return match[0]
        mistake = _mistake(word, rest, match[0].endswith("}"), environ)
        if mistake:
            mistakes.append(mistake)
            return ""
        return (environ or {})[rest]

    return _walk(value, replaced), list(dict.fromkeys(mistakes))


def _walk(value: Any, replaced: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _walk(inner, replaced) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(inner, replaced) for inner in value]
    return PLACEHOLDER.sub(replaced, value) if isinstance(value, str) else value


def _mistake(word: str, rest: str | None, closed: bool, environ: Mapping[str, str] | None) -> str:
    """Return the mistake of a placeholder, or an empty text if it can be replaced."""
    if word != "env":
        form = "${...}" if rest is None else f"${{{word}:...}}"
        remedy = DAG_REMEDY if environ is None else FILE_REMEDY
        return f"{remedy}; nothing here resolves {form}"
    if rest is None or not closed or not VARIABLE.fullmatch(rest):
        return "write ${env:NAME}, with a name of letters, digits and '_'"
    if environ is None:
        return "read the variable in the DAG, with os.environ; ${env:NAME} is resolved only in a file"
    return "" if rest in environ else f"set the environment variable {rest}, which the value needs"
