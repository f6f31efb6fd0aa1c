"""`db2cdc options`: prints the page docs/reference/options.md with every property of a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from airflow_provider_db2cdc.config.debezium_properties import IGNORED, REFUSED, TRANSFORMS
from airflow_provider_db2cdc.config.properties import ALIASES, USED
from airflow_provider_db2cdc.config.property import Form, Property
from airflow_provider_db2cdc.config.transform import STATE, UNWRAP_SETTINGS, UNWRAPS, WITHOUT_MEANING
from airflow_provider_db2cdc.source.address import CLI_DEFAULTS, CLI_OPTIONS, JDBC_OPTIONS

INTRODUCTION = """\
# Options

`db2cdc options` writes this page from the code. A configuration file takes these names dotted or nested.
`Db2CdcTaskGroup` takes them in snake_case (`table_include_list`) or dotted (`**{"table.include.list": ...}`). It takes
names that end with `*` only dotted.

A file is YAML, JSON (comments and tabs are accepted) or `.properties`. It may hold a connector of Kafka Connect, the
REST answer about one, a KafkaConnector of Strimzi, or the settings of Debezium Server (`debezium.source.*`).

## Values

- A *list* is a YAML or JSON list, or a text with commas. A comma in a quoted name, in brackets or after a backslash
  does not split it.
- A *pattern* names tables (`schema.table`) or columns (`schema.table.column`). It has one of two forms:
  - a regular expression of Python's `re`. It matches the whole name and ignores case. A sign such as `$` stands for
    itself only after a backslash. In JSON a backslash is written twice: `"SALES\\\\..*"` is YAML's `SALES\\..*`.
    Syntax that only Java has (`\\Q...\\E`, `&&` in a class, `\\p{...}`, `(?<name>...)`) is refused, with Python's form.
    `\\w` and letters cover all alphabets, not only ASCII;
  - a quoted name: `"SALES"."ORDER$"`, `"SALES"."T"."COL"`. It is compared exactly.
- A word from a fixed list, such as a `snapshot.mode`, may have any case. Channels and classes are taken as written.
- A *path* in a file is relative to that file. A *mapping* has its own names below it.
- Where a driver or Spark expects a text, numbers and booleans are accepted. A password of digits needs quotes.
- `${env:NAME}` in a file stands for an environment variable. Any other placeholder, such as `${file:...}` or
  `${vault:...}`, is refused in a value that is used.
- All mistakes are reported together. A list that is given, but empty, is reported as a warning.

## Patterns that match nothing

`db2cdc doctor` and every plan report a pattern that matches nothing. The plan stops where rows or columns would be
missing or exposed: `table.include.list`, `column.exclude.list`, `message.key.columns` and the lists of snapshots. For
`table.exclude.list` and `column.include.list` it logs a warning.

A pattern of `column.exclude.list` gives only a warning in three cases:

- It matches a column that is not captured (a LOB).
- It matches a column of a table that this pipeline does not carry. The table is registered, or it exists and the
  pattern names it without wildcards. So a column can be excluded before its table is registered.
- It matches only columns of keys. Keys are always carried.
"""

SECTIONS: Mapping[str, Sequence[str]] = {
    "Source and target": ("pipeline", "target", "topic", "cdc", "table", "column", "message", "accept"),
    "Events": ("tombstones", "key"),
    "Snapshots": ("snapshot", "incremental", "high"),
    "Signals and notifications": ("signal", "notification"),
    "Throughput": ("max", "rows", "query", "parallel", "capture", "end", "tick"),
    "Offsets": ("offsets",),
    "Maintenance": ("change",),
    "Db2, for the command line": ("database", "driver"),
    "Spark": ("spark",),
}
"""The sections of the page, each with the first words of its properties' names."""

FORMS: Mapping[Form, str] = {"text": "", "list": " A list.", "path": " A path.", "mapping": " A mapping."}


def run() -> None:
    """Write the page to standard output."""
    sys.stdout.write(options_page())


def options_page() -> str:
    """Return all properties as markdown: the used ones by section, then the others with the reasons."""
    parts = [INTRODUCTION]
    for title, words in SECTIONS.items():
        rows = [_row(item) for item in USED if item.name.split(".")[0] in words]
        parts.append(f"## {title}\n\n{_table(('Name', 'Default', 'What it does'), rows)}")
        if "database" in words:
            parts.append(_drivers())
    aliases = [(f"`{name}`", f"`{meant}`") for name, meant in ALIASES.items()]
    parts.append(f"## Other names\n\n{_table(('Name', 'Means'), aliases)}")
    parts.append(
        "## Debezium's properties without a meaning here\n\n"
        f"They are reported and otherwise ignored.\n\n{_table(('Names', 'Why'), _by_reason(IGNORED))}"
    )
    parts.append(
        "## Debezium's properties that are refused\n\n"
        "They would change what is delivered. A value that asks for the normal behaviour is accepted.\n\n"
        f"{_table(('Names', 'Why'), _by_reason(REFUSED))}"
    )
    parts.append(_transforms())
    return "\n".join(parts)


def _transforms() -> str:
    """Return the section on Kafka Connect's transforms: which are ignored, and which are refused."""
    titles: dict[str, list[str]] = {}
    for name, reason in WITHOUT_MEANING.items():
        titles.setdefault(reason, []).append(name.rpartition(".")[2])
    unwraps = sorted(name.rpartition(".")[2] for name in UNWRAPS)
    settings: dict[str, list[str]] = {}
    for name, reason in UNWRAP_SETTINGS.items():
        settings.setdefault(reason, []).append(name)
    names = ", ".join(f"`{item.name}`" for item in TRANSFORMS)
    lines = [f"- {_names(classes)}: {reason}." for reason, classes in [*titles.items(), (STATE, unwraps)]]
    inner = [f"  - {_names(keys)}: {reason}." for reason, keys in settings.items()]
    return (
        "## Transforms\n\nThe class of a transform decides.\n\n"
        f"{_table(('Names', 'Result'), [(names, 'Reported, or refused with the reason')])}\n"
        "These classes are reported and otherwise ignored:\n\n" + "\n".join([*lines, *inner]) + "\n\n"
        "Any other transform is refused: filters, masks, headers, casts and your own classes.\n"
        "A predicate is ignored, because it only chooses what a transform is applied to.\n"
    )


def _drivers() -> str:
    defaults = [f"{name}={value}" for name, value in CLI_DEFAULTS.items()]
    return (
        "In Airflow a connection replaces these properties, except `database.time.zone`. Its extras have the same\n"
        "keywords.\n\n"
        "`database.options` and the extras take these keywords of Db2's CLI driver:\n\n"
        f"{_names(CLI_OPTIONS)}.\n\n"
        f"The defaults are {_names(defaults)}. Times are seconds. A\n"
        "lock timeout of `-1` waits for ever, as Db2 does by default. Spark's reads have no lock timeout unless you\n"
        "set `currentLockTimeout`.\n\n"
        f"`driver.*` and the extras take these properties of the JDBC driver:\n\n{_names(JDBC_OPTIONS)}.\n"
    )


def _row(item: Property) -> tuple[str, str, str]:
    default = item.default if " " in item.default or not item.default else f"`{item.default}`"
    return f"`{item.name}`", default, f"{item.text}{FORMS[item.form]}"


def _by_reason(items: Iterable[Property]) -> list[tuple[str, str]]:
    reasons: dict[str, list[str]] = {}
    for item in items:
        accepted = ", ".join(f"`{value}`" for value in item.accepts if value)
        reasons.setdefault(f"{item.text}{f' (accepted: {accepted})' if accepted else ''}", []).append(f"`{item.name}`")
    return [(", ".join(names), reason) for reason, names in reasons.items()]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names, key=str.lower))
