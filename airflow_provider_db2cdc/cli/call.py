"""The call of a command's function, which is only imported for the call. It reports an interrupt."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

INTERRUPTED = 130
GO_ON = ("cli.tick", "cli.signals.heal", "cli.repair.run")
"""Commands whose batches the next tick finishes."""


def call(module: str, *arguments: Any, function: str = "run", **options: Any) -> None:
    """Run a function of a module of the package, and exit with the code that it returns."""
    command: Callable[..., int | None] = getattr(import_module(f"airflow_provider_db2cdc.{module}"), function)
    try:
        code = command(*arguments, **options)
    except KeyboardInterrupt:
        # typer would exit without a message.
        again = "; the next tick does what is missing" if module in GO_ON else ""
        typer.secho(f"interrupted{again}", err=True, fg="yellow")
        code = INTERRUPTED
    if code:
        raise typer.Exit(code)
