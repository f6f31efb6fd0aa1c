"""IBM's driver loses no character in any locale of the process."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, fetch
from airflow_provider_db2cdc.sandbox.protocol.prepared import PreparedConnection
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.source.driver import padded

ROOT = Path(__file__).parents[2]
LOCALES = [{"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LC_ALL": "xx_XX.UTF-8"}, {}]
TEXTS = ["é", "Ş İ", "受注", "😀", "😀a😀", "👩‍👩‍👧 end", "\U0010ffff"]

READ = """
import json, sys
import ibm_db
from airflow_provider_db2cdc.sandbox.protocol.prepared import PreparedConnection
from airflow_provider_db2cdc.sandbox.capture.statement import fetch
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql.query import Query
order = json.loads(sys.argv[1])
address = Db2Address(**order["address"])
if order["other_first"]:
    ibm_db.connect(address.dsn(), "", "")
found = []
source, agent = Source(address), PreparedConnection(address.dsn())
for text in order["texts"]:
    select = f"SELECT CAST(? AS VARCHAR(200)), V, '{text}' FROM ODD.TEXTS WHERE V = ? AND V = '{text}'"
    found.append([list(row) for row in source.rows(Query(select, (text, text)))])
    found.append([list(row) for row in fetch(agent, select, text, text)])
print(json.dumps(found))
"""


def environ(**changed: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "DB2"))}
    return {**kept, "PYTHONPATH": str(ROOT), **changed}


@pytest.fixture(scope="module")
def odd(address: Db2Address, connection: Connection) -> Db2Address:
    """A table of odd texts."""
    connection.cursor().execute("CREATE SCHEMA ODD")
    connection.cursor().execute("CREATE TABLE ODD.TEXTS (V VARCHAR(200))")
    for text in TEXTS:
        connection.cursor().execute("INSERT INTO ODD.TEXTS VALUES (?)", (text,))
    return address


@pytest.mark.parametrize("other_first", [False, True], ids=["first-connection", "after-another-connection"])
@pytest.mark.parametrize("changed", [*LOCALES, {"LANG": "C.UTF-8", "DB2CODEPAGE": "819"}], ids=str)
@pytest.mark.sandbox
def test_texts_parameters_and_values_are_the_same_in_every_locale(
    odd: Db2Address, changed: dict[str, str], other_first: bool
) -> None:
    assert_read(odd, changed, other_first)


@pytest.mark.parametrize("changed", LOCALES, ids=str)
@pytest.mark.sandbox
def test_a_password_is_sent_as_it_is_in_every_locale(
    odd: Db2Address, connection: Connection, changed: dict[str, str]
) -> None:
    connection.cursor().execute("CALL SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY('derby.user.oddly', 'pä€Ş')")
    assert_read(replace(odd, user="oddly", password="pä€Ş"), changed, other_first=False)


def assert_read(address: Db2Address, changed: dict[str, str], other_first: bool) -> None:
    order = {"address": asdict(address), "texts": TEXTS, "other_first": other_first}
    command = [sys.executable, "-c", READ, json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ(**changed), check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[[text] * 3] for text in TEXTS for _ in ("plan", "agent")]


@pytest.mark.sandbox
@pytest.mark.parametrize("text", TEXTS)
def test_no_character_cuts_the_end_of_a_statement(silent_sandbox: Sandbox, connection: Connection, text: str) -> None:
    agent = PreparedConnection(silent_sandbox.dsn())
    for one in (connection, agent):
        assert fetch(one, f"SELECT '{text}' FROM SYSIBM.SYSDUMMY1 WHERE 12 = 12") == [(text,)]
        assert fetch(one, f"SELECT '{text}' FROM SYSIBM.SYSDUMMY1 WHERE 1 = 12") == []
    agent.close()


@pytest.mark.sandbox
@pytest.mark.parametrize("half", ["\ud83d", "\udcc5\udc9e"])
def test_half_a_character_is_refused_before_it_ends_the_process(connection: Connection, half: str) -> None:
    """Such halves come from JSON's escapes and from command lines that are not UTF-8."""
    for text, params in ((f"VALUES '{half}'", ()), ("VALUES CAST(? AS VARCHAR(9))", (f"a{half}",))):
        with pytest.raises(ConfigurationError, match=r"half a character \(U\+D"):
            fetch(connection, text, *params)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_padded_text_has_a_code_point_for_each_utf_16_unit(text: str) -> None:
    units = len(text.encode("utf-16-le")) // 2
    assert len(padded(text)) == units
    assert padded(text).rstrip(" ") == text.rstrip(" ")


def test_only_the_driver_module_connects_or_runs_statements() -> None:
    """A connection or statement outside the driver module would lose characters without an error."""
    past = {"connect", "pconnect", "prepare", "exec_immediate", "execute", "executemany"}
    found = []
    for path in sorted((ROOT / "airflow_provider_db2cdc").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="ibm_db" | "ibm_db_dbi" | "cursor"), attr=name)):
                    found += [(path.name, name)] if name in past else []
                case ast.ImportFrom(module="ibm_db" | "ibm_db_dbi"):
                    found.append((path.name, "import"))
    assert sorted(found) == [
        ("driver.py", "connect"),
        ("driver.py", "connect"),
        ("driver.py", "execute"),
        ("prepared.py", "execute"),
        ("prepared.py", "prepare"),  # of a padded text
        ("shop.py", "executemany"),  # of plain names
        ("supervisor.py", "exec_immediate"),  # of a constant
    ]
