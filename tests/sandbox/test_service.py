"""The sandbox as IBM's drivers see it, and as a process that starts, breaks, recovers and stops."""

from __future__ import annotations

import datetime as dt
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import ibm_db_dbi
import psutil
import pytest

from airflow_provider_db2cdc.sandbox.server.derby import DerbyServer, DerbySettings, free_port
from airflow_provider_db2cdc.sandbox.server.jdk import DerbyError, find_jars
from airflow_provider_db2cdc.sandbox.server.service import Sandbox, SandboxError
from airflow_provider_db2cdc.sandbox.server.state import (
    SandboxOptions,
    SandboxState,
    read_state,
    running_state,
    write_state,
)
from airflow_provider_db2cdc.sandbox.server.supervisor import derby_home

JccRun = Callable[..., dict[str, str]]
Connection = Any
READ_FOR_EVER = """
import sys, ibm_db
connection = ibm_db.connect(sys.argv[1], "", "")
print("on", flush=True)
while True:
    rows = ibm_db.exec_immediate(connection, "SELECT ID, A FROM JCC_TYPES")
    while ibm_db.fetch_tuple(rows):
        pass
"""


@pytest.fixture
def connection(sandbox: Sandbox) -> Iterator[Connection]:
    connection = sandbox.connect()
    yield connection
    connection.rollback()
    connection.close()


@pytest.fixture(scope="session")
def jcc_found(sandbox: Sandbox, jcc: JccRun) -> dict[str, str]:
    return jcc(sandbox, "types")


def fetch(connection: Connection, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.execute(sql, parameters)
    return [tuple(row) for row in cursor.fetchall()]


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        time.sleep(0.05)


class TestIbmDb:
    VALUES: tuple[tuple[str, object], ...] = (
        ("SMALLINT", -32768),
        ("INTEGER", 2147483647),
        ("BIGINT", -9223372036854775808),
        ("DECIMAL(31,5)", Decimal("12345678901234567890123456.78901")),
        ("DOUBLE", 0.1),
        ("CHAR(6)", "ab    "),
        ("VARCHAR(40)", "Zażółć 東京 😀"),
        ("VARCHAR(5)", ""),
        ("CHAR(3) FOR BIT DATA", b"\x00\xff\x80"),
        ("VARCHAR(16) FOR BIT DATA", bytes(range(16))),
        ("DATE", dt.date(1, 1, 1)),
        ("TIME", dt.time(23, 59, 59)),
        ("TIMESTAMP", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    )

    @pytest.mark.parametrize(("sql_type", "value"), VALUES, ids=[name for name, _ in VALUES])
    def test_value_comes_back_as_it_went_in(self, connection: Connection, sql_type: str, value: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"CREATE TABLE ONE_TYPE (V {sql_type})")
        cursor.execute("INSERT INTO ONE_TYPE VALUES (?)", (value,))
        cursor.execute("INSERT INTO ONE_TYPE VALUES (?)", (None,))
        assert fetch(connection, "SELECT V FROM ONE_TYPE ORDER BY V") == [(value,), (None,)]

    def test_20000_rows_go_in_by_executemany(self, connection: Connection) -> None:
        connection.cursor().execute(
            "CREATE TABLE MANY (ID INT NOT NULL PRIMARY KEY, V VARCHAR(20), B CHAR(2) FOR BIT DATA)"
        )
        rows = [(number, f"v{number}", b"\x00\xff") for number in range(20_000)]
        connection.cursor().executemany("INSERT INTO MANY VALUES (?, ?, ?)", rows)
        assert fetch(connection, "SELECT COUNT(*), COUNT(DISTINCT V), MIN(B) FROM MANY") == [
            (20_000, 20_000, b"\x00\xff")
        ]

    def test_bit_data_is_found_by_a_parameter(self, connection: Connection) -> None:
        connection.cursor().execute("CREATE TABLE LSN (C VARCHAR(16) FOR BIT DATA)")
        connection.cursor().executemany("INSERT INTO LSN VALUES (?)", [(bytes([n]) * 16,) for n in range(10)])
        assert fetch(connection, "SELECT COUNT(*) FROM LSN WHERE C > ? AND C <= ?", b"\x03" * 16, b"\x05" * 16) == [
            (2,)
        ]

    def test_lob_of_several_frames_goes_in_and_comes_out_cast(self, connection: Connection) -> None:
        connection.cursor().execute("CREATE TABLE LOBS (C CLOB(1M), B BLOB(1M))")
        connection.cursor().execute("INSERT INTO LOBS VALUES (?, ?)", ("é" * 100_000, b"\x00\xff" * 100_000))
        found = fetch(connection, "SELECT LENGTH(C), LENGTH(B), CAST(C AS VARCHAR(3)) FROM LOBS")
        assert found == [(100_000, 200_000, "ééé")]

    def test_names_in_any_letters_are_kept(self, connection: Connection) -> None:
        connection.cursor().execute('CREATE TABLE "Zamówienie.x" ("Größe ""a""" INT, "SYSCAT.TABLES" INT)')
        connection.cursor().execute('INSERT INTO "Zamówienie.x" VALUES (1, 2)')
        cursor = connection.cursor()
        cursor.execute('SELECT * FROM "Zamówienie.x"')
        assert [column[0] for column in cursor.description] == ['Größe "a"', "SYSCAT.TABLES"]

    def test_statement_of_200_kb_arrives_whole(self, connection: Connection) -> None:
        literals = ",".join(str(number) for number in range(100_000, 130_000))
        sql = f"SELECT CURRENT SERVER, 'CURRENT SERVER' FROM SYSIBM.SYSDUMMY1 WHERE 129999 IN ({literals}) WITH UR"
        assert len(sql) > 200_000
        assert fetch(connection, sql) == [("SANDBOX", "CURRENT SERVER")]

    def test_catalog_names_lead_to_the_sandbox_schema(self, connection: Connection) -> None:
        connection.cursor().execute("CREATE TABLE SANDBOX_SYSCAT.WIRE_TEST (TABSCHEMA VARCHAR(128))")
        connection.cursor().execute("INSERT INTO SANDBOX_SYSCAT.WIRE_TEST VALUES ('SYSCAT.WIRE_TEST')")
        assert fetch(connection, "SELECT TABSCHEMA FROM SYSCAT.WIRE_TEST WITH UR") == [("SYSCAT.WIRE_TEST",)]

    def test_change_that_finds_no_row_is_no_error(self, connection: Connection) -> None:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE EMPTY (A INT)")
        cursor.execute("DELETE FROM EMPTY")
        cursor.execute("UPDATE EMPTY SET A = ? WHERE A = ?", (1, 2))
        assert cursor.rowcount == 0
        assert fetch(connection, "SELECT COUNT(*) FROM EMPTY") == [(0,)]

    def test_error_with_a_long_text_leaves_the_connection_usable(self, connection: Connection) -> None:
        # Derby makes a user's schema with its first table; without one the error is 42Y07.
        connection.cursor().execute("CREATE TABLE FIRST_OF_ITS_SCHEMA (A INT)")
        with pytest.raises(ibm_db_dbi.Error, match="42X05"):
            fetch(connection, f'SELECT * FROM "{"ü" * 120}"')
        assert fetch(connection, "VALUES 1") == [(1,)]

    def test_wrong_password_fails_as_on_db2(self, sandbox: Sandbox) -> None:
        dsn = sandbox.dsn().replace(f"PWD={sandbox.password};", "PWD=wrong;")
        with pytest.raises(ibm_db_dbi.OperationalError, match="SQL30082N"):
            ibm_db_dbi.connect(dsn, "", "")

    def test_error_of_a_statement_carries_its_sqlstate(self, connection: Connection) -> None:
        with pytest.raises(ibm_db_dbi.Error, match="42Y07"):
            fetch(connection, "SELECT * FROM NOWHERE.NOTHING")


class TestJcc:
    @pytest.mark.parametrize(
        ("fact", "value"),
        [
            ("varchar", "Zażółć 東京 3"),
            ("bits", "00ff03"),
            ("type_of_bits", "true"),
            ("timestamp", "9999-12-31 23:59:59.999999"),
            ("decimal", "12345678901234567890123456.78901"),
            ("bigint", "-9223372036854775808"),
            ("char", "ab    |"),
            ("date", "0001-01-01"),
            ("lob_rows", "500"),
            ("lob_characters", str(200_000 + 499 * len("small"))),
            ("lob_bytes", "100000"),
            ("scrolled", "499,4"),
            ("long_statement", "SANDBOX"),
            ("three_at_once", "300,300,300"),
            ("wrong_password", "28000"),
        ],
    )
    def test_driver_finds(self, jcc_found: dict[str, str], fact: str, value: str) -> None:
        assert jcc_found[fact] == value


class TestBrokenClients:
    def test_clients_killed_during_a_request_leave_no_threads(
        self, sandbox: Sandbox, jcc_found: dict[str, str], connection: Connection
    ) -> None:
        service = psutil.Process(sandbox.state.pid)
        gc.collect()  # connections that earlier tests dropped
        idle_threads = service.num_threads()
        command = [sys.executable, "-c", READ_FOR_EVER, sandbox.dsn()]
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
        for client in clients:
            assert client.stdout
            assert client.stdout.readline() == b"on\n"
        time.sleep(0.2)
        for client in clients:
            client.kill()
            client.communicate(timeout=10)
        wait_until(lambda: service.num_threads() <= idle_threads)
        assert fetch(connection, "SELECT COUNT(*) FROM JCC_TYPES") == [(500,)]

    def test_peer_that_speaks_no_drda_is_turned_away(self, sandbox: Sandbox) -> None:
        with socket.create_connection(("127.0.0.1", sandbox.port), 5) as peer:
            peer.settimeout(5)
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert peer.recv(100) == b""
        assert sandbox.health() is None


class TestLife:
    def test_broken_derby_is_restarted_and_data_and_port_outlive_it_and_a_stop(
        self, tmp_path: Path, sandbox_jars: str
    ) -> None:
        options = SandboxOptions(capture=False, jars=sandbox_jars, health_interval_s=0.2)
        with Sandbox.start(tmp_path, options) as sandbox:
            port = sandbox.port
            insert_one(sandbox, create=True)
            os.kill(sandbox.state.derby_pid, signal.SIGKILL)
            wait_until(lambda: current_restarts(tmp_path) == 1)
            insert_one(sandbox)
            # the trace of the fault that only a restart cures and that no health check meets
            with (tmp_path / "data" / "derby.log").open("a") as log:
                log.write("java.lang.NullPointerException\n")
            wait_until(lambda: current_restarts(tmp_path) == 2)
            assert insert_one(sandbox) == 3
        last = read_state(tmp_path)
        assert last
        assert not is_alive(last.pid)
        assert last.derby_pid == 0
        sandbox.stop()
        with Sandbox.start(tmp_path, options) as sandbox:
            assert sandbox.port == port
            assert insert_one(sandbox) == 4

    def test_a_folder_of_another_version_is_taken_over(self, tmp_path: Path) -> None:
        mine = SandboxState(SandboxOptions(database="MINE"), port=50001)
        write_state(tmp_path, mine)
        state = tmp_path / "sandbox.json"
        document = json.loads(state.read_text())
        document["options"]["of another version"] = document["of another version"] = 1
        del document["options"]["java_options"]
        state.write_text(json.dumps(document))
        assert read_state(tmp_path) == mine

    def test_killed_service_is_noticed_and_its_derby_ended_by_the_next(self, tmp_path: Path, sandbox_jars: str) -> None:
        sandbox = Sandbox.start(tmp_path, capture=False, jars=sandbox_jars)
        insert_one(sandbox, create=True)
        os.kill(sandbox.state.pid, signal.SIGKILL)
        wait_until(lambda: running_state(tmp_path) is None)
        assert is_alive(sandbox.state.derby_pid)
        with pytest.raises(SandboxError, match="no sandbox runs"):
            Sandbox.find(tmp_path)
        with Sandbox.start(tmp_path, capture=False, jars=sandbox_jars) as following:
            assert not is_alive(sandbox.state.derby_pid)
            assert insert_one(following) == 2
        sandbox.stop()

    def test_stop_ends_a_derby_that_a_killed_service_never_recorded(self, tmp_path: Path, sandbox_jars: str) -> None:
        settings = DerbySettings(derby_home(tmp_path), find_jars(Path(sandbox_jars)), free_port(), "u", "p")
        beside = replace(settings, home=tmp_path / "data beside", port=free_port())
        told_of, other = DerbyServer(settings), DerbyServer(beside)
        try:
            told_of.start()
            other.start()
            Sandbox(tmp_path, SandboxState()).stop()
            # A killed process has no command any more a moment before it can be waited for.
            deadline = time.monotonic() + 10
            while told_of.pid is not None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert told_of.pid is None
            assert other.pid is not None
        finally:
            for server in (told_of, other):
                server.stop()

    def test_second_start_finds_the_running_one(self, sandbox: Sandbox) -> None:
        again = Sandbox.start(sandbox.folder)
        assert again.state == Sandbox.find(sandbox.folder).state
        assert again.state.pid == sandbox.state.pid

    def test_missing_jars_are_reported_before_anything_starts(self, tmp_path: Path) -> None:
        with pytest.raises(DerbyError, match="db2cdc jars --sandbox"):
            Sandbox.start(tmp_path / "sandbox", jars=str(tmp_path))
        assert not (tmp_path / "sandbox").exists()

    def test_state_file_is_private_and_log_says_what_it_is_not(self, sandbox: Sandbox) -> None:
        assert (sandbox.folder / "sandbox.json").stat().st_mode & 0o077 == 0
        assert (sandbox.folder / "data" / "derby.properties").stat().st_mode & 0o077 == 0
        log = (sandbox.folder / "service.log").read_text()
        assert "NOT Db2" in log
        assert sandbox.password not in log


@pytest.mark.parametrize("wrong", [{"password": "a;b"}, {"password": ""}, {"user": "a;b"}, {"database": "a b"}])
def test_options_that_no_driver_can_carry_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SandboxOptions(**wrong)  # type: ignore[arg-type]


def insert_one(sandbox: Sandbox, create: bool = False) -> int:
    connection = sandbox.connect()
    if create:
        connection.cursor().execute("CREATE TABLE KEPT (ID INT)")
    connection.cursor().execute("INSERT INTO KEPT VALUES 1")
    connection.commit()
    [(count,)] = fetch(connection, "SELECT COUNT(*) FROM KEPT")
    connection.rollback()
    connection.close()
    return int(count)


def current_restarts(folder: Path) -> int:
    state = read_state(folder)
    return state.restarts if state and state.ready else 0


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # some containers have no init that reaps
    except psutil.NoSuchProcess:
        return False
