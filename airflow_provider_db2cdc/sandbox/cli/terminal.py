"""What the sandbox's commands share: their arguments, a connection, and how they show rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider_db2cdc.cli.screen import new_table, screen
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.sandbox.protocol.sql_rewrite import parse_table

if TYPE_CHECKING:
    from airflow_provider_db2cdc.cdc.table import TableId
    from airflow_provider_db2cdc.sandbox.server.service import Sandbox

Folder = Annotated[Path, typer.Option("--dir", help="The sandbox's folder.")]
TableName = Annotated[str, typer.Argument(metavar="SCHEMA.TABLE", help='Quote names that are not plain: "a.b"."c d".')]
TableNames = Annotated[
    list[str], typer.Argument(metavar="SCHEMA.TABLE...", help='Quote names that are not plain: "a.b"."c d".')
]


def say(text: str, style: str | None = None) -> None:
    """Print a line of plain text."""
    screen().print(text, style=style, soft_wrap=True)


def show_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as a table; bytes as hex digits."""
    table = new_table(*names)
    for row in rows:
        table.add_row(*map(shown, row))
    screen().print(table)


def shown(value: Any) -> str:
    """Return a value of a row as text."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return value.hex()
        case _:
            return str(value)


def find(folder: Path) -> Sandbox:
    """Return the sandbox that runs in the folder.

    Raises:
        SandboxError: none does.
    """
    from airflow_provider_db2cdc.sandbox.server.service import Sandbox

    return Sandbox.find(folder)


@contextmanager
def connected(folder: Path) -> Iterator[Any]:
    """Yield a connection; what is not committed at the end is rolled back."""
    with closing(find(folder).connect()) as connection:
        yield connection


def tables_of(names: Sequence[str]) -> list[TableId]:
    """Return the tables that the user named.

    Raises:
        ConfigurationError: a name is not SCHEMA.TABLE.
    """
    try:
        return [parse_table(name) for name in names]
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
