"""The output of commands, and the form of times and durations in it.

Only this module makes a console of Rich. Its consoles print every text as it is. Names and patterns of users hold
square brackets, backslashes and colons, which Rich takes for markup and emoji codes.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    "Console", "Table", "Text", "clock", "new_table", "note", "noted", "print_json", "screen", "span", "tell_ignored",
    "working",
]  # fmt: skip

PLAIN_WIDTH = 160
SECONDS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def screen(error: bool = False) -> Console:
    """Return a console on standard output or standard error.

    For a file or pipe, its lines are wide enough for tables. Texts are printed as they are. A text with a style is a
    `Text`.
    """
    console = Console(stderr=error, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def new_table(*names: str, title: str | None = None) -> Table:
    """Return a table of these columns. A text that is longer than its column is continued on the next line."""
    table = Table(title=title)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def note(text: str) -> None:
    """Print a message to standard error, apart from the command's result."""
    screen(error=True).print(text, soft_wrap=True)


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with a text. The yielded function changes the text."""
    with screen(error=True).status(Text(text)) as spinner:
        yield lambda line: spinner.update(Text(line))


class _Notes(logging.Handler):
    """A handler that prints log lines as messages."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line."""
        note(record.getMessage())


@contextmanager
def noted(logger: str) -> Iterator[None]:
    """Print the INFO lines of a logger. The commands do not set up logging, so these would be lost."""
    log, notes = logging.getLogger(logger), _Notes()
    before = log.level
    log.addHandler(notes)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(notes)


def print_json(data: Any) -> None:
    """Write one JSON document to standard output."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def tell_ignored(ignored: Mapping[str, str], with_reasons: bool = False) -> None:
    """Print the properties that have no meaning here, and the reasons if asked for."""
    if not ignored:
        return
    if not with_reasons:
        note(f"without meaning here: {', '.join(sorted(ignored))} (`db2cdc doctor` says why)")
        return
    for name, reason in sorted(ignored.items()):
        note(f"  {name} is ignored: {reason}")


def clock(ts_ms: int | None) -> str:
    """Return a time in milliseconds as text to the second, or `-` for None.

    A commit's time is the source's local time, which is treated as UTC.
    """
    return "-" if ts_ms is None else datetime.fromtimestamp(ts_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float | None) -> str:
    """Return a duration in its largest fitting unit, or `-` for None."""
    if seconds is None:
        return "-"
    for size, unit in SECONDS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
