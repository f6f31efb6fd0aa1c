"""Rewrite the few words of Db2's SQL that Derby lacks, and nothing else.

Literals, quoted identifiers and comments pass untouched: a small tokenizer knows where words stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_provider_db2cdc.cdc.table import TableId

CATALOG_SCHEMA = "SANDBOX_SYSCAT"
"""The schema for what cannot be created in Derby's SYS* schemas, under SYSCAT's, SYSIBM's and SYSIBMADM's names."""

_TOKEN = re.compile(
    r"""
    (?P<opaque> '(?:[^']++|'')*+(?:'|\Z) | "(?:[^"]++|"")*+(?:"|\Z) | --[^\r\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<word> [^\W\d][\w$#@]* )
    | (?P<blank> \s+ )
    | (?P<other> \d[\w.]* | . )
    """,
    re.DOTALL | re.VERBOSE,
)
_CANDIDATE = re.compile(r"SYSCAT|SYSIBM|SERVER|TIMEZONE|COUNT_BIG", re.IGNORECASE)
_DERBY_OWN = frozenset({"SYSDUMMY1"})


def rewrite_sql(text: str, database: str) -> str:
    """Return the statement as Derby understands it; the same text when nothing has to change."""
    if not _CANDIDATE.search(text):
        return text
    tokens = list(_tokens(text))
    return "".join(_rewritten(tokens, database))


def split_statements(script: str) -> list[str]:
    """Split a script at the semicolons outside literals, quoted identifiers and comments; drop empty statements."""
    statements: list[list[tuple[str, str]]] = [[]]
    for token in _tokens(script):
        if token == ("other", ";"):
            statements.append([])
        else:
            statements[-1].append(token)
    return [
        "".join(text for _, text in statement).strip() for statement in statements if any(map(_is_solid, statement))
    ]


def parse_table(text: str) -> TableId:
    """Return the table that SCHEMA.TABLE names as SQL reads it: plain names in capitals, "quoted" ones as they stand.

    Raises:
        ValueError: the text is not two names with a dot between them.
    """
    match list(_tokens(text.strip())):
        case [schema, ("other", "."), name]:
            return TableId(_identifier(*schema), _identifier(*name))
    raise ValueError(f'{text!r} is not SCHEMA.TABLE; quote a name that is not plain, as in "a.b"."c d"')


def _identifier(kind: str, text: str) -> str:
    if kind == "word":
        return text.upper()
    if kind == "opaque" and len(text) > 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    raise ValueError(f'{text!r} is not an SQL name; quote a name that is not plain, as in "c d"')


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        yield str(match.lastgroup), match.group()


def _rewritten(tokens: list[tuple[str, str]], database: str) -> Iterator[str]:
    index = 0
    while index < len(tokens):
        kind, text = tokens[index]
        word = text.upper() if kind == "word" else ""
        if word in {"SYSCAT", "SYSIBM", "SYSIBMADM"} and _is_lacking(tokens, index, word):
            yield CATALOG_SCHEMA
        elif word == "COUNT_BIG":
            yield "COUNT"
        elif word == "CURRENT_SERVER":
            yield _server_literal(database)
        elif word == "CURRENT" and (end := _follows(tokens, index, "SERVER")):
            yield _server_literal(database)
            index = end
        elif word == "CURRENT" and (end := _follows(tokens, index, "TIMEZONE")):
            yield "SANDBOX.TIMEZONE()"
            index = end
        else:
            yield text
        index += 1


def _is_lacking(tokens: list[tuple[str, str]], index: int, schema: str) -> bool:
    if index and tokens[index - 1][1] == ".":  # a table or column that happens to bear the schema's name
        return False
    dot = _next_solid(tokens, index)
    if dot is None or tokens[dot][1] != ".":
        return False
    name = _next_solid(tokens, dot)
    if name is None or tokens[name][0] not in {"word", "opaque"}:
        return False
    # Derby keeps metadata procedures (SQLTABLES, ...) in SYSIBM; the names of Db2's tables there start with SYS.
    table = tokens[name][1].strip('"').upper()
    return schema != "SYSIBM" or (table.startswith("SYS") and table not in _DERBY_OWN)


def _follows(tokens: list[tuple[str, str]], index: int, word: str) -> int | None:
    following = _next_solid(tokens, index)
    return following if following is not None and tokens[following][1].upper() == word else None


def _next_solid(tokens: list[tuple[str, str]], index: int) -> int | None:
    for position in range(index + 1, len(tokens)):
        if _is_solid(tokens[position]):
            return position
    return None


def _is_solid(token: tuple[str, str]) -> bool:
    kind, text = token
    return kind != "blank" and not (kind == "opaque" and text[:2] in {"--", "/*"})


def _server_literal(database: str) -> str:
    return "CAST('" + database.replace("'", "''") + "' AS VARCHAR(128))"
