"""Running a command's function, which is imported only then, and telling an interrupt."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

INTERRUPTED = 130


def call(module: str, *arguments: Any, function: str = "run", **options: Any) -> None:
    """Run a function of a module of the package, and exit with the code that it returns."""
    command: Callable[..., int | None] = getattr(import_module(f"airflow_provider_db2cdc.{module}"), function)
    try:
        code = command(*arguments, **options)
    except KeyboardInterrupt:
        # Beyond this typer makes it a silent exit.
        again = "; the next tick does what is missing" if module == "cli.tick" else ""
        typer.secho(f"interrupted{again}", err=True, fg="yellow")
        code = INTERRUPTED
    if code:
        raise typer.Exit(code)
