"""`db2cdc`: the commands, and the report of their errors.

Each command imports what it needs when it runs, so that `db2cdc --help` answers at once.
"""

from __future__ import annotations

import signal
import sys
import traceback
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_db2cdc.cli.call import call
from airflow_provider_db2cdc.errors import Db2CdcError

EQUIPMENT = Path(__file__).parents[1] / "demo" / "cli.py"
"""The commands of the demo and the sandbox. A clone has them, and an installed wheel does not."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Batch change data capture from IBM Db2 into Delta Lake.",
)
offset_app = typer.Typer(no_args_is_help=True, help="Look at the offsets of a pipeline, or repair them.")
app.add_typer(offset_app, name="offset")

ConfigFile = Annotated[Path, typer.Option("--config", "-c", help="The pipeline's YAML, JSON or properties file.")]
TableNames = Annotated[
    list[str] | None, typer.Argument(metavar="[TABLE]...", help="SCHEMA.TABLE, as the catalog spells it.")
]
AllFailed = Annotated[bool, typer.Option("--all-failed", help="Also every table that failed in the last tick.")]
All = Annotated[bool, typer.Option("--all", help="Also every table of the last tick, or with an offset.")]
AllLost = Annotated[
    bool, typer.Option("--all-failed", help="Also every table whose offset is missing, ahead or damaged.")
]
TableName = Annotated[str, typer.Argument(help="SCHEMA.TABLE, as the catalog spells it.")]
OfAirflow = Annotated[
    bool, typer.Option("--airflow", help="Use the offsets in Airflow's Variables; needs Airflow's database.")
]
IntervalEnd = Annotated[
    str | None,
    typer.Option(
        help="With end.at=interval: an ISO time with its zone, such as 2026-01-01T00:00:00Z. Commits up to then are "
        "carried. Without it only snapshots are."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to standard output and everything else to error.")]

TIME = "ISO, with a zone such as 2026-01-01T00:00:00Z, else in database.time.zone."


@app.callback()
def _root(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    """Declare the options of `db2cdc` itself. `main` reads them."""


@app.command()
def tick(
    config: ConfigFile,
    as_json: AsJson = False,
    progress: Annotated[bool, typer.Option("--progress", help="Show Spark's output while it runs.")] = False,
    interval_end: IntervalEnd = None,
) -> None:
    """Write all changes that were captured since the last tick to the target. `tick.repeat.s` repeats that."""
    call("cli.tick", config, as_json=as_json, progress=progress, interval_end=interval_end)


@app.command()
def heal(
    config: ConfigFile,
    tables: Annotated[list[str], typer.Argument(help="SCHEMA.TABLE, or patterns as in table.include.list.")],
    where: Annotated[str, typer.Option("--where", help="Heal only rows that meet this SQL condition.")] = "",
    as_json: AsJson = False,
    progress: Annotated[bool, typer.Option("--progress", help="Show Spark's output while it runs.")] = False,
) -> None:
    """Run a tick that also reads tables again, and writes only what differs from their current state.

    Where Airflow runs the pipeline, trigger its form with the kind heal instead.
    """
    call("cli.signals.heal", config, tables, where, as_json=as_json, progress=progress)


@app.command(epilog="Example: db2cdc backfill -c shop.yaml --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z SHOP.ORDERS")
def backfill(  # noqa: PLR0913 - each parameter is an option of the command.
    config: ConfigFile,
    begin: Annotated[str, typer.Option("--from", help=f"Compare commits after this time. {TIME}")],
    end: Annotated[str, typer.Option("--to", help="Compare commits up to this time.")],
    tables: Annotated[list[str] | None, typer.Argument(help="SCHEMA.TABLE, several of them; default is all.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare, and write nothing.")] = False,
    airflow: OfAirflow = False,
    as_json: AsJson = False,
    progress: Annotated[bool, typer.Option("--progress", help="Show Spark's output while it runs.")] = False,
) -> None:
    """Compare an interval with the change tables, and repair what differs. No offset moves."""
    wanted = {"begin": begin, "end": end, "tables": tables or (), "dry_run": dry_run, "airflow": airflow}
    call("cli.repair.run", config, wanted, as_json=as_json, progress=progress, function="backfill")


@app.command(epilog="Example: db2cdc replay -c shop.yaml SHOP.ORDERS --dry-run")
def replay(  # noqa: PLR0913 - each parameter is an option of the command.
    config: ConfigFile,
    tables: Annotated[list[str], typer.Argument(help="SCHEMA.TABLE, several of them.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare, and write nothing.")] = False,
    airflow: OfAirflow = False,
    as_json: AsJson = False,
    progress: Annotated[bool, typer.Option("--progress", help="Show Spark's output while it runs.")] = False,
) -> None:
    """Set the current state of tables to what their whole change logs say. Only rows that differ are written."""
    wanted = {"tables": tables, "dry_run": dry_run, "airflow": airflow}
    call("cli.repair.run", config, wanted, as_json=as_json, progress=progress, function="replay")


@app.command()
def verify(  # noqa: PLR0913 - each parameter is an option of the command.
    config: ConfigFile,
    tables: Annotated[list[str] | None, typer.Argument(help="SCHEMA.TABLE, several of them; default is all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Compare only numbers of rows.")] = False,
    show_keys: Annotated[bool, typer.Option("--show-keys", help="Show between which keys rows differ.")] = False,
    budget_s: Annotated[float | None, typer.Option(help="Seconds after which no further chunks are read.")] = None,
    id_: Annotated[str, typer.Option("--id", help="Continue the verification of that id, or begin it.")] = "",
    as_json: AsJson = False,
    progress: Annotated[bool, typer.Option("--progress", help="Show Spark's output while it runs.")] = False,
) -> None:
    """Compare the target with the source, and show where they differ. Nothing is changed."""
    wanted = {"id": id_, "tables": tables or (), "quick": quick, "show_keys": show_keys, "budget_s": budget_s}
    call("cli.verify", config, wanted, as_json=as_json, progress=progress)


@app.command()
def maintain(  # noqa: PLR0913 - each parameter is an option of the command.
    config: ConfigFile,
    tables: Annotated[list[str] | None, typer.Argument(help="SCHEMA.TABLE, several of them; default is all.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and write nothing.")] = False,
    airflow: OfAirflow = False,
    as_json: AsJson = False,
    progress: Annotated[bool, typer.Option("--progress", help="Show Spark's output while it runs.")] = False,
) -> None:
    """Trim, compact and clean the target's tables. It needs no source, and runs next to ticks."""
    wanted = {"tables": tables or (), "dry_run": dry_run, "airflow": airflow}
    call("cli.maintain", config, wanted, as_json=as_json, progress=progress)


@app.command()
def status(config: ConfigFile, as_json: AsJson = False, airflow: OfAirflow = False) -> None:
    """Show each table's registration, offset and lag, and how far snapshots are."""
    call("cli.status", config, as_json=as_json, airflow=airflow)


@app.command()
def doctor(config: ConfigFile, as_json: AsJson = False, airflow: OfAirflow = False) -> None:
    """Check what a tick needs on the source and on this machine. Show each failure with its remedy."""
    call("cli.doctor", config, as_json=as_json, airflow=airflow)


@app.command()
def options() -> None:
    """Print every property of a configuration, with default and meaning, as markdown."""
    call("cli.options")


@app.command()
def jars(
    into: Annotated[Path | None, typer.Option("--into", help="Folder to fill; default is the user's cache.")] = None,
    ivy_settings: Annotated[Path | None, typer.Option("--ivy-settings", help="Ivy's settings, for a mirror.")] = None,
    stores: Annotated[
        list[str] | None, typer.Option("--with", metavar="STORE", help="Add the client of an object store: s3.")
    ] = None,
) -> None:
    """Fetch the jars that Spark needs, once."""
    call("cli.jars", into, ivy_settings, ("spark",), stores or ())


@offset_app.command("show")
def offset_show(config: ConfigFile, as_json: AsJson = False, airflow: OfAirflow = False) -> None:
    """Print the stored offsets."""
    call("cli.offset", config, as_json=as_json, airflow=airflow, function="show")


@offset_app.command("set")
def offset_set(
    config: ConfigFile,
    table: TableName,
    lsn: Annotated[str, typer.Argument(help="Every change up to this LSN is in the target.")],
    batch: Annotated[
        int | None, typer.Option(min=0, help="Number of the last batch; default is the stored one.")
    ] = None,
    airflow: OfAirflow = False,
) -> None:
    """Store an offset, also an earlier one: a repair that an error message may ask for."""
    call("cli.offset", config, table, lsn, batch, airflow=airflow, function="set_offset")


@offset_app.command("restart")
def offset_restart(
    config: ConfigFile,
    tables: TableNames = None,
    all_failed: AllFailed = False,
    all_tables: All = False,
    airflow: OfAirflow = False,
) -> None:
    """Have the next tick snapshot tables again and replace their state: the way out of a gap."""
    group = "all" if all_tables else "failed" if all_failed else None
    call("cli.offset", config, "restart", tables or [], group, airflow=airflow, function="request")


@offset_app.command("restore")
def offset_restore(
    config: ConfigFile, tables: TableNames = None, all_failed: AllLost = False, airflow: OfAirflow = False
) -> None:
    """Have the next tick take lost, damaged or edited offsets from the target, without a snapshot."""
    group = "failed" if all_failed else None
    call("cli.offset", config, "restore", tables or [], group, airflow=airflow, function="request")


@offset_app.command("remove")
def offset_remove(config: ConfigFile, table: TableName, airflow: OfAirflow = False) -> None:
    """Remove a table's offset, for example when its target is removed too, to begin again."""
    call("cli.offset", config, table, airflow=airflow, function="remove")


def main() -> None:
    """Run the command line. An error is shown with its remedy, and the process exits with 1."""
    debug = "--debug" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character that the terminal's encoding lacks is shown as an escape, and does not end the command.
            stream.reconfigure(errors="backslashreplace")
    # Spark is a child in its own session. A signal must therefore end this process through its `finally` blocks.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, frame: sys.exit(128 + number))
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    _add_commands_of_a_clone()
    try:
        app(arguments)
    except Db2CdcError as error:
        if debug:
            traceback.print_exc()
        else:
            _show_error(error)
        sys.exit(1)
    except OSError as error:
        # A full disk, for example. In Python's traceback the cause would come last.
        if debug or not error.strerror:
            raise
        where = f": {error.filename}" if error.filename else ""
        remedy = "Mend that, then run the command again (--debug has the stack)."
        _show_error(Db2CdcError(f"{error.strerror}{where}", remedy))
        sys.exit(1)


def _add_commands_of_a_clone() -> None:
    if EQUIPMENT.is_file():
        import_module("airflow_provider_db2cdc.demo.cli").add_to(app)


def _show_error(error: Db2CdcError) -> None:
    typer.secho(f"error: {error.problem}", err=True, fg="red")
    if error.remedy:
        typer.secho(f"  -> {error.remedy}", err=True)


if __name__ == "__main__":
    main()
