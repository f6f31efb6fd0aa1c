"""`db2cdc sandbox`: run the stand-in Db2, choose its captured tables, disturb its capture, talk SQL to it."""

from __future__ import annotations

import sys
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider_db2cdc.errors import ConfigurationError, SourceError
from airflow_provider_db2cdc.sandbox.cli import capture
from airflow_provider_db2cdc.sandbox.cli.terminal import (
    Folder,
    TableNames,
    connected,
    find,
    say,
    show_rows,
    shown,
    tables_of,
)
from airflow_provider_db2cdc.sandbox.protocol.sql_rewrite import split_statements
from airflow_provider_db2cdc.sandbox.server.state import BANNER, DEFAULT_FOLDER, SandboxOptions

if TYPE_CHECKING:
    from airflow_provider_db2cdc.sandbox.server.service import Sandbox

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=BANNER)
app.add_typer(capture.app, name="capture")


class Updates(StrEnum):
    """What a captured update looks like in the change table."""

    PAIR = "DI"
    ROW = "U"


@app.command()
def up(  # noqa: PLR0913 - each parameter is an option of the command.
    folder: Folder = DEFAULT_FOLDER,
    port: Annotated[
        int, typer.Option(help="Port for clients; 0 keeps the folder's last one, or takes a free one.")
    ] = 0,
    commit_interval: Annotated[float, typer.Option(help="Seconds between two commits of the capture agent.")] = 1.0,
    lsn_bytes: Annotated[int, typer.Option(help="Width of an LSN: 16, or 10 as before Db2 10.1.")] = 16,
    updates: Annotated[
        Updates, typer.Option(help="Capture an update as D and I rows, or as one U row.")
    ] = Updates.PAIR,
    before_images: Annotated[
        bool, typer.Option("--before-images", help="Capture columns with the old values too.")
    ] = False,
    time_zone: Annotated[
        str, typer.Option(help="Time zone of the source's clock: UTC, GMT+02:00, Europe/Berlin.")
    ] = "UTC",
    capture: Annotated[bool, typer.Option(help="Run the capture agent.")] = True,
    jars: Annotated[
        Path | None, typer.Option(help="Folder of Apache Derby's jars; see `db2cdc jars --sandbox`.")
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay and log here until interrupted.")] = False,
) -> None:
    """Start the sandbox; its data are those of the last time. Returns when it answers."""
    options = SandboxOptions(
        port=port,
        jars=str(jars) if jars else None,
        capture=capture,
        commit_interval_s=commit_interval,
        lsn_bytes=lsn_bytes,
        update_as=updates.value,
        before_images=before_images,
        time_zone=time_zone,
    )
    from airflow_provider_db2cdc.sandbox.server import service

    if foreground:
        say(BANNER, style="yellow")
        service.request_start(folder.resolve(), options)
        raise typer.Exit(service.main(["--dir", str(folder)]))
    _tell_connection(service.Sandbox.start(folder, options))


@app.command()
def down(folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop the sandbox; its data stay in the folder."""
    sandbox = find(folder)
    sandbox.stop()
    say(f"stopped; data stay in {sandbox.folder}")


@app.command()
def status(folder: Folder = DEFAULT_FOLDER) -> None:
    """Show whether it answers, what is captured and how far capture is. Exits with 1 if it does not run."""
    sandbox = find(folder)
    fault = sandbox.health()
    _tell_connection(sandbox)
    say(f"health: {fault if fault else 'answers'}, restarts of derby: {sandbox.state.restarts}")
    if fault:
        raise typer.Exit(1)
    if sandbox.state.options.capture:
        _tell_capture(sandbox)


@app.command()
def addtable(tables: TableNames, folder: Folder = DEFAULT_FOLDER) -> None:
    """Register tables for capture, as ASNCDC.ADDTABLE does."""
    from airflow_provider_db2cdc.sandbox.capture import control_tables

    parsed = tables_of(tables)
    with connected(folder) as connection:
        for table in parsed:
            control_tables.addtable(connection, table.schema, table.name)
            say(f"captured: {table}")


@app.command()
def removetable(tables: TableNames, folder: Folder = DEFAULT_FOLDER) -> None:
    """End the capture of tables and drop their change tables, as ASNCDC.REMOVETABLE does."""
    from airflow_provider_db2cdc.sandbox.capture import control_tables

    parsed = tables_of(tables)
    with connected(folder) as connection:
        for table in parsed:
            control_tables.removetable(connection, table.schema, table.name)
            say(f"no longer captured: {table}")


@app.command()
def sql(
    text: Annotated[
        str | None, typer.Argument(help="Statements with ';' between them; '-' reads standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the statements from a file.")] = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Run SQL statements in one transaction, print what they return, and commit."""
    script = _script(text, file)
    with connected(folder) as connection:
        for number, statement in enumerate(split_statements(script), 1):
            _run_statement(connection, statement, number)
        connection.commit()


def _run_statement(connection: Any, statement: str, number: int) -> None:
    import ibm_db_dbi

    from airflow_provider_db2cdc.source.driver import execute

    cursor = connection.cursor()
    try:
        execute(cursor, statement)
    except ibm_db_dbi.Error as error:
        raise SourceError(f"statement {number} failed: {error}", "Nothing of this script was committed.") from error
    if cursor.description:
        show_rows([column[0] for column in cursor.description], cursor.fetchall())
    else:
        say(f"{max(cursor.rowcount, 0)} rows changed")


def _script(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise ConfigurationError("nothing to run, or too much", "Give either statements or --file.")
    if file:
        return file.read_text(encoding="utf-8")
    return sys.stdin.read() if text == "-" else str(text)


def _tell_connection(sandbox: Sandbox) -> None:
    options = sandbox.state.options
    say(BANNER, style="yellow")
    for name, value in (
        ("host, port", f"{sandbox.state.host} {sandbox.port}"),
        ("database", options.database),
        ("user, password", f"{options.user} {options.password}"),
        ("airflow", 'connection type ibmdb2 with extra {"Authentication": "SERVER", "ArrayInputChain": "0"}'),
        ("ibm_db", sandbox.dsn().replace(f"PWD={options.password};", "PWD=...;")),
        ("jdbc", sandbox.jdbc_url()),
        ("folder, pid", f"{sandbox.folder} {sandbox.state.pid}"),
    ):
        say(f"{name:<16}{value}")


def _tell_capture(sandbox: Sandbox) -> None:
    from airflow_provider_db2cdc.sandbox.capture.statement import fetch

    with closing(sandbox.connect()) as connection:
        registrations = fetch(
            connection,
            "SELECT RTRIM(SOURCE_OWNER) || '.' || SOURCE_TABLE, STATE, RTRIM(CD_OWNER) || '.' || CD_TABLE, "
            "CD_NEW_SYNCHPOINT FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD <> 'Y' ORDER BY 1 WITH UR",
        )
        position = fetch(
            connection, "SELECT SYNCHPOINT, SYNCHTIME FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y' WITH UR"
        )
    show_rows(["captured table", "state", "change table", "changed up to"], registrations)
    for synchpoint, synchtime in position:
        say(f"capture is at {shown(synchpoint)}, up to {shown(synchtime)} UTC")
