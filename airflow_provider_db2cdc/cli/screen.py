"""What the commands write on, and how they write a moment or a span.

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
    """Return standard output, or error, for tables and colours; a file or pipe gets lines wide enough for them.

    Texts are printed as they are; one that has a style is a `Text`.
    """
    console = Console(stderr=error, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def new_table(*names: str, title: str | None = None) -> Table:
    """Return a table of these columns; what is longer than its column goes on in the next line."""
    made = Table(title=title)
    for name in names:
        made.add_column(name, overflow="fold")
    return made


def note(text: str) -> None:
    """Say something to the person, beside the command's result."""
    screen(error=True).print(text, soft_wrap=True)


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show that something is done, with a text beside it; what is yielded shows another text."""
    with screen(error=True).status(Text(text)) as spinner:
        yield lambda line: spinner.update(Text(line))


class _Notes(logging.Handler):
    """What takes log lines to the person."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say the line."""
        note(record.getMessage())


@contextmanager
def noted(logger: str) -> Iterator[None]:
    """Say what a logger has to tell: no command sets up logging, which would let its INFO lines fall."""
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


def tell_ignored(ignored: Mapping[str, str], whole: bool = False) -> None:
    """Name the properties that have no meaning here; with `whole` each with its reason."""
    if not ignored:
        return
    if not whole:
        note(f"without meaning here: {', '.join(sorted(ignored))} (`db2cdc doctor` says why)")
        return
    for name, reason in sorted(ignored.items()):
        note(f"  {name} is ignored: {reason}")


def clock(ts_ms: int | None) -> str:
    """Return a moment as text to the second, `-` for none; a commit's is the source's local time, taken for UTC."""
    return "-" if ts_ms is None else datetime.fromtimestamp(ts_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float | None) -> str:
    """Return a span in its largest fitting unit, `-` for none."""
    if seconds is None:
        return "-"
    for size, unit in SECONDS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
