"""`db2cdc sandbox` on a real sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import CaptureStoppedError, ConfigurationError, RegistrationError, SourceError
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured
from airflow_provider_db2cdc.sandbox.capture.statement import Connection
from airflow_provider_db2cdc.sandbox.cli.main import app
from airflow_provider_db2cdc.sandbox.protocol.sql_rewrite import parse_table
from airflow_provider_db2cdc.sandbox.server.service import Sandbox, SandboxError

Run = Callable[..., Result]


@pytest.fixture
def run(sandbox: Sandbox) -> Run:
    def invoke(command: str, *arguments: str) -> Result:
        result = CliRunner().invoke(app, [command, "--dir", str(sandbox.folder), *arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def test_up_prints_how_to_connect_and_what_it_is_not(run: Run, sandbox: Sandbox) -> None:
    told = run("up").output
    assert f"127.0.0.1 {sandbox.port}" in told
    assert sandbox.jdbc_url() in told
    assert "NOT Db2" in told


def test_status_answers(run: Run) -> None:
    result = run("status")
    assert result.exit_code == 0
    assert "health: answers" in result.output


@pytest.mark.parametrize("command", ["status", "down", "sql"])
def test_commands_on_nothing_name_the_remedy(command: str, tmp_path: Path) -> None:
    arguments = ["VALUES 1"] if command == "sql" else []
    result = CliRunner().invoke(app, [command, "--dir", str(tmp_path), *arguments])
    assert isinstance(result.exception, SandboxError)
    assert "sandbox up" in result.exception.remedy
    assert result.exit_code == 1


def test_sql_prints_rows_with_bits_as_hex_and_null(run: Run) -> None:
    told = run("sql", "SELECT * FROM (VALUES ('[red]x', X'00FF'), ('y', CAST(NULL AS CHAR(2) FOR BIT DATA))) T (A, B)")
    assert "[red]x" in told.output
    assert "00ff" in told.output
    assert "NULL" in told.output


def test_sql_of_a_file_commits_all_or_nothing(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("CREATE TABLE CLI (A INT);\nINSERT INTO CLI VALUES 1, 2; -- ;\n")
    assert "2 rows changed" in run("sql", "--file", str(script)).output
    with pytest.raises(SourceError, match="statement 2 failed"):
        run("sql", "DELETE FROM CLI; SELECT * FROM NOWHERE")
    assert "2" in run("sql", "SELECT COUNT(*) FROM CLI").output
    run("sql", "DROP TABLE CLI")


def test_sql_needs_one_source_of_statements(run: Run) -> None:
    with pytest.raises(ConfigurationError, match="nothing to run"):
        run("sql")


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("sales.orders", TableId("SALES", "ORDERS")),
        ('"a.b"."c d"', TableId("a.b", "c d")),
        ('Sales."Größe ""x"""', TableId("SALES", 'Größe "x"')),
    ],
)
def test_table_names_are_read_as_sql_reads_them(text: str, table: TableId) -> None:
    assert parse_table(text) == table


@pytest.mark.parametrize("text", ["orders", "a.b.c", "a b.c", '"".x', "'a'.b", "a.", "", '"a.b'])
def test_other_table_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quote a name"):
        parse_table(text)


@pytest.fixture
def connection(captured_sandbox: Sandbox) -> Iterator[Connection]:
    """A connection to a sandbox with an agent. The faults that the test has injected are removed."""
    connection = captured_sandbox.connect()
    yield connection
    faults.resume(connection)
    faults.lag(connection, 0)
    faults.missing_uow(connection, on=False)
    connection.close()


def test_capture_is_registered_held_still_and_resumed(captured_sandbox: Sandbox, connection: Connection) -> None:
    table = '"a.b"."c d"'

    def run(*command: str) -> str:
        result = CliRunner().invoke(app, [*command, "--dir", str(captured_sandbox.folder)])
        if result.exception:
            raise result.exception
        return result.output

    run("sql", f"CREATE TABLE {table} (ID INT NOT NULL PRIMARY KEY)")
    assert "captured: a.b.c d" in run("addtable", table)
    with pytest.raises(RegistrationError, match="already"):
        run("addtable", table)
    assert "a.b.c d" in run("status")
    run("capture", "pause")
    assert "paused" in run("capture", "show")
    run("sql", f"INSERT INTO {table} VALUES 1")
    with pytest.raises(CaptureStoppedError):
        await_captured(connection, timeout_s=1.0)
    run("capture", "resume")
    await_captured(connection, timeout_s=20.0)
    assert "1" in run("sql", 'SELECT IBMSNAP_OPERATION, COUNT(*) FROM ASNCDC."CDC_a.b_c d" GROUP BY IBMSNAP_OPERATION')
    assert re.search(r"pruned: [1-9]\d* rows", run("capture", "prune"))
    run("capture", "lag", "5")
    run("capture", "missing-uow")
    assert {"lag_s", "missing_uow"} <= set(run("capture", "show").split())
    run("capture", "reregister", table)
    run("capture", "state", table, "S")
    run("capture", "cold-start")
    run("removetable", table)
    assert "a.b.c d" not in run("status")
