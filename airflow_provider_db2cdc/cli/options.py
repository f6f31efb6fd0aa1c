"""`db2cdc options`: every property of a pipeline, as the page docs/options.md has it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from airflow_provider_db2cdc.foreign_properties import IGNORED, REFUSED, TRANSFORMS
from airflow_provider_db2cdc.properties import ALIASES, USED
from airflow_provider_db2cdc.property import Form, Property
from airflow_provider_db2cdc.source.address import CLI_DEFAULTS, CLI_OPTIONS, JDBC_OPTIONS
from airflow_provider_db2cdc.transform import STATE, UNWRAP_SETTINGS, UNWRAPS, WITHOUT_MEANING

INTRODUCTION = """\
# Options

Written by `db2cdc options` from what the code knows. A configuration file has these names dotted or nested;
`Db2CdcTaskGroup` takes them in snake_case (`table_include_list`) or dotted (`**{"table.include.list": ...}`), those
that end with `*` only dotted.

A file may be YAML, JSON (with comments and tabs, too) or `.properties`. It may hold a connector of Kafka Connect, the
REST answer about one, a KafkaConnector of Strimzi, or the settings of Debezium Server (`debezium.source.*`).

- A *list* is a YAML or JSON list, or a text with commas. A comma in a quoted name, in brackets or after a backslash
  does not split it.
- A *pattern* names tables (`schema.table`) or columns (`schema.table.column`). It has one of two forms:
  - a regular expression of Python's `re`. It matches the whole name and ignores case. A sign such as `$` stands for
    itself only after a backslash. In JSON a backslash is written twice: `"SALES\\\\..*"` is YAML's `SALES\\..*`.
    Syntax that only Java has (`\\Q...\\E`, `&&` in a class, `\\p{...}`, `(?<name>...)`) is refused, with Python's form.
    `\\w` and letters know all alphabets, not ASCII only;
  - a quoted name: `"SALES"."ORDER$"`, `"SALES"."T"."COL"`. It is compared exactly.
- `db2cdc doctor` and every plan report a pattern that matches nothing. The plan stops where rows or columns would be
  missing or exposed: `table.include.list`, `column.exclude.list`, `message.key.columns` and the lists of snapshots. For
  `table.exclude.list` and `column.include.list` it logs a warning.
- A pattern of `column.exclude.list` may match a column that is not captured (a LOB). It may also match a column of a
  table that this pipeline does not carry: a registered one, or one that exists and is named without wildcards. Both are
  warnings, so that a column can be excluded before its table is registered. So is a pattern that matches only columns
  of keys, which are always carried.
- Words that a property lists, as `snapshot.mode` does, are taken without regard to case; channels and classes as they
  are written.
- A *path* in a file is relative to that file. A *mapping* has names of its own below it.
- Where a driver or Spark wants a text, numbers and booleans are taken as such. A password of digits goes in quotes.
- `${env:NAME}` in a value of a file stands for an environment variable. Any other placeholder, such as `${file:...}` or
  `${vault:...}`, is refused in a value that is used.
- All mistakes are reported together. A list that is given, but empty, is reported as a warning.
"""

SECTIONS: Mapping[str, Sequence[str]] = {
    "What is carried": ("pipeline", "target", "topic", "cdc", "table", "column", "message", "accept"),
    "Events": ("tombstones", "key"),
    "Snapshots": ("snapshot", "incremental", "high"),
    "Signals and notifications": ("signal", "notification"),
    "How much at once": ("max", "rows", "query", "parallel", "capture"),
    "Offsets": ("offsets",),
    "Db2, for the command line": ("database", "driver"),
    "Spark": ("spark",),
}
"""By the first word of a property's name."""

FORMS: Mapping[Form, str] = {"text": "", "list": " A list.", "path": " A path.", "mapping": " A mapping."}


def run() -> None:
    """Write the page to standard output."""
    sys.stdout.write(options_page())


def options_page() -> str:
    """Return all properties as markdown: those that are used by section, then those that are not, with the reasons."""
    parts = [INTRODUCTION]
    for title, words in SECTIONS.items():
        rows = [_row(item) for item in USED if item.name.split(".")[0] in words]
        parts.append(f"## {title}\n\n{_table(('Name', 'Default', 'What it does'), rows)}")
        if "database" in words:
            parts.append(_drivers())
    aliases = [(f"`{name}`", f"`{meant}`") for name, meant in ALIASES.items()]
    parts.append(f"## Other names\n\n{_table(('Name', 'Means'), aliases)}")
    parts.append(
        "## Debezium's that have no meaning here\n\n"
        f"They are reported and otherwise ignored.\n\n{_table(('Names', 'Why'), _by_reason(IGNORED))}"
    )
    parts.append(
        "## Debezium's that are refused\n\n"
        "They would change what is delivered. A value that asks for what is done anyway is let pass.\n\n"
        f"{_table(('Names', 'Why'), _by_reason(REFUSED))}"
    )
    parts.append(_transforms())
    return "\n".join(parts)


def _transforms() -> str:
    """Return what comes of Kafka Connect's transforms, by what they do."""
    titles: dict[str, list[str]] = {}
    for name, reason in WITHOUT_MEANING.items():
        titles.setdefault(reason, []).append(name.rpartition(".")[2])
    unwraps = sorted(name.rpartition(".")[2] for name in UNWRAPS)
    settings: dict[str, list[str]] = {}
    for name, reason in UNWRAP_SETTINGS.items():
        settings.setdefault(reason, []).append(name)
    names = ", ".join(f"`{item.name}`" for item in TRANSFORMS)
    lines = [f"- {_names(found)}: {reason}." for reason, found in [*titles.items(), (STATE, unwraps)]]
    inner = [f"  - {_names(found)}: {reason}." for reason, found in settings.items()]
    return (
        "## Transforms\n\nEach transform is answered once, by its class.\n\n"
        f"{_table(('Names', 'What comes of them'), [(names, 'Reported, or refused with the reason')])}\n"
        "These are reported and otherwise ignored:\n\n" + "\n".join([*lines, *inner]) + "\n\n"
        "Any other transform is refused: filters, masks, headers, casts and classes of your own.\n"
        "A predicate is ignored, because it only chooses what a transform is applied to.\n"
    )


def _drivers() -> str:
    defaults = [f"{name}={value}" for name, value in CLI_DEFAULTS.items()]
    return (
        "In Airflow these are a connection, whose extras have the same keywords. "
        "`database.options` and the extras take, of Db2's CLI\ndriver:\n\n"
        f"{_names(CLI_OPTIONS)}.\n\n"
        f"By default it is told {_names(defaults)}, times in seconds. A lock timeout of\n"
        "`-1` waits for ever, as Db2 by itself does; Spark's reads are told none: `currentLockTimeout` sets it.\n\n"
        f"`driver.*` and the extras take, of the JDBC driver:\n\n{_names(JDBC_OPTIONS)}.\n"
    )


def _row(item: Property) -> tuple[str, str, str]:
    default = item.default if " " in item.default or not item.default else f"`{item.default}`"
    return f"`{item.name}`", default, f"{item.text}{FORMS[item.form]}"


def _by_reason(items: Iterable[Property]) -> list[tuple[str, str]]:
    reasons: dict[str, list[str]] = {}
    for item in items:
        accepted = ", ".join(f"`{value}`" for value in item.accepts if value)
        reasons.setdefault(f"{item.text}{f' (passes: {accepted})' if accepted else ''}", []).append(f"`{item.name}`")
    return [(", ".join(names), reason) for reason, names in reasons.items()]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names, key=str.lower))
