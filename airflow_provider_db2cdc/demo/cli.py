"""The commands that only a clone has: `db2cdc demo`, `ui` and `sandbox`, and the further jars of `db2cdc jars`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_provider_db2cdc.cli.call import call


def add_to(app: typer.Typer) -> None:
    """Add the commands to `db2cdc`; its own `jars` is replaced."""
    foreign = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command()(jars)
    app.command(add_help_option=False, context_settings=foreign)(sandbox)
    app.command()(demo)
    app.command()(ui)


def jars(
    into: Annotated[Path | None, typer.Option("--into", help="Folder to fill; default is the user's cache.")] = None,
    sandbox: Annotated[bool, typer.Option("--sandbox", help="The sandbox's database too.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="A Kafka broker too, for the tests.")] = False,
    ivy_settings: Annotated[Path | None, typer.Option("--ivy-settings", help="Ivy's settings, for a mirror.")] = None,
    stores: Annotated[
        list[str] | None, typer.Option("--with", metavar="STORE", help="Add the client of an object store: s3.")
    ] = None,
) -> None:
    """Fetch the jars that Spark needs, once."""
    more = [part for part, wanted in (("sandbox", sandbox), ("kafka", kafka)) if wanted]
    call("cli.jars", into, ivy_settings, ["spark", *more], stores or ())


def sandbox(context: typer.Context) -> None:
    """Run a stand-in Db2 with a capture agent, for trying and testing."""
    import_module("airflow_provider_db2cdc.sandbox.cli.main").app(context.args, prog_name="db2cdc sandbox")


def demo(  # noqa: PLR0913 - each parameter is an option of the command.
    folder: Annotated[Path, typer.Option(help="Folder for everything; emptied first.")] = Path("build", "demo"),
    ticks: Annotated[int, typer.Option(min=1, help="DAG runs while the writers continue, after the snapshot.")] = 3,
    seconds_per_tick: Annotated[float, typer.Option(min=0, help="Seconds of writing before each.")] = 3.0,
    rows: Annotated[int, typer.Option(min=50, help="Rows that the shop begins with.")] = 4000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the sandbox running.")] = False,
    cluster: Annotated[bool, typer.Option("--cluster", help="Run Spark as a standalone cluster, two workers.")] = False,
) -> None:
    """Go the whole way on this machine: source, capture, the shipped DAG, Spark, Delta, and compare row by row."""
    options: dict[str, Any] = {
        "ticks": ticks,
        "seconds_per_tick": seconds_per_tick,
        "rows": rows,
        "keep": keep,
        "cluster": cluster,
    }
    call("demo.start", folder, **options)


def ui(
    folder: Annotated[Path, typer.Option(help="Folder for everything; emptied first.")] = Path("build", "ui"),
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    rows: Annotated[int, typer.Option(min=50, help="Rows that the shop begins with.")] = 4000,
    schedule: Annotated[str, typer.Option(help="When the DAG runs: cron, or `none`.")] = "*/2 * * * *",
) -> None:
    """Run Airflow's own UI with the sandbox, a changing shop and the shipped DAG, until Ctrl-C."""
    call("demo.start", folder, port, rows, schedule, function="ui")
