"""`db2cdc sandbox capture`: hold the capture agent still, or let happen what happens to real ones."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.sandbox.cli.terminal import (
    Folder,
    TableName,
    connected,
    say,
    show_rows,
    tables_of,
)
from airflow_provider_db2cdc.sandbox.server.state import DEFAULT_FOLDER

app = typer.Typer(no_args_is_help=True, help="Hold the capture agent still, or let it err as real ones do.")


class RegistrationState(StrEnum):
    """IBMSNAP_REGISTER.STATE."""

    ACTIVE = "A"
    INACTIVE = "I"
    STOPPED = "S"


@app.command()
def pause(folder: Folder = DEFAULT_FOLDER) -> None:
    """Hold capture still, as if the agent were down."""
    from airflow_provider_db2cdc.sandbox.capture import faults

    with connected(folder) as connection:
        faults.pause(connection)
    say("capture is paused")


@app.command()
def resume(folder: Folder = DEFAULT_FOLDER) -> None:
    """Let capture continue from where it was: a warm start."""
    from airflow_provider_db2cdc.sandbox.capture import faults

    with connected(folder) as connection:
        faults.resume(connection)
    say("capture continues")


@app.command()
def lag(
    seconds: Annotated[float, typer.Argument(min=0, help="How far capture stays behind; 0 ends it.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Keep capture some seconds behind the source."""
    from airflow_provider_db2cdc.sandbox.capture import faults

    with connected(folder) as connection:
        faults.lag(connection, seconds)
    say(f"capture stays {seconds:g} s behind")


@app.command("missing-uow")
def missing_uow(
    on: Annotated[bool, typer.Option("--on/--off", help="Omit the rows, or write them again.")] = True,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Write no rows into IBMSNAP_UOW, as an agent with these inserts off."""
    from airflow_provider_db2cdc.sandbox.capture import faults

    with connected(folder) as connection:
        faults.missing_uow(connection, on)
    say("IBMSNAP_UOW gets no rows" if on else "IBMSNAP_UOW gets its rows")


@app.command()
def prune(
    upto: Annotated[str | None, typer.Option(help="Last COMMITSEQ to remove, in hex; default is all.")] = None,
    retention: Annotated[float | None, typer.Option(help="Remove what is older than so many seconds.")] = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Delete captured changes from the start of the log, whether they were read or not."""
    from airflow_provider_db2cdc.sandbox.capture import faults

    last = _lsn(upto) if upto else None
    with connected(folder) as connection:
        pruned = faults.prune(connection, last, retention)
    say(f"pruned: {pruned.rows} rows, up to {pruned.upto.hex() if pruned.upto else 'nothing'}")


@app.command("cold-start")
def cold_start(folder: Folder = DEFAULT_FOLDER) -> None:
    """Start capture from the end of the log: captured changes and those not captured yet are lost."""
    from airflow_provider_db2cdc.sandbox.capture import faults

    with connected(folder) as connection:
        faults.cold_start(connection)
    say("capture started cold")


@app.command("state")
def set_state(table: TableName, state: RegistrationState, folder: Folder = DEFAULT_FOLDER) -> None:
    """Set a registration's STATE: S (after an error) and I stop its capture, A starts it from now on."""
    from airflow_provider_db2cdc.sandbox.capture import faults

    [parsed] = tables_of([table])
    with connected(folder) as connection:
        faults.set_state(connection, parsed.schema, parsed.name, state.value)
    say(f"{parsed}: state {state.value}")


@app.command()
def reregister(table: TableName, folder: Folder = DEFAULT_FOLDER) -> None:
    """Remove a table from capture and register it again: its captured changes are gone."""
    from airflow_provider_db2cdc.sandbox.capture import faults

    [parsed] = tables_of([table])
    with connected(folder) as connection:
        faults.reregister(connection, parsed.schema, parsed.name)
    say(f"registered again: {parsed}")


@app.command()
def show(folder: Folder = DEFAULT_FOLDER) -> None:
    """Show what is switched on."""
    from airflow_provider_db2cdc.sandbox.capture import agent_control

    with connected(folder) as connection:
        show_rows(["switch", "value"], sorted(agent_control.read(connection).items()))


def _lsn(text: str) -> bytes:
    try:
        return bytes.fromhex(text.replace(":", ""))
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is not an LSN", "Give its hex digits, with or without ':'.") from error
