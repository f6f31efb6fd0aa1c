from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_db2cdc.errors import ConfigurationError, SourceError
from airflow_provider_db2cdc.sandbox.capture.statement import Connection
from airflow_provider_db2cdc.sandbox.protocol.proxy import Shim
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql.driver_error import UnreachableError
from airflow_provider_db2cdc.sql.query import Query

pytestmark = pytest.mark.sandbox

ONE = Query("SELECT 1 FROM SYSIBM.SYSDUMMY1")
QUICK = {"Authentication": "SERVER", "ConnectTimeout": "2"}


@pytest.mark.parametrize(
    "password", ["p;w='d}x{ y", "p=w", "p'w'", 'p"w"', "{pw}", "p}w{", "'pw'", '"pw"', "p w", "pä€w", "p?&%w"]
)
def test_each_password_logs_in_or_is_refused_by_name(
    address: Db2Address, connection: Connection, password: str
) -> None:
    doubled = password.replace("'", "''")
    connection.cursor().execute(f"CALL SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY('derby.user.odd', '{doubled}')")
    source = Source(replace(address, user="odd", password=password))
    if ";" in password:
        with pytest.raises(ConfigurationError, match="the password holds ';'"):
            source.rows(ONE)
    else:
        with source:
            assert source.rows(ONE) == [(1,)]


@pytest.mark.parametrize("quoted", ["'a;b'", '"a;b"', "{a;b}", "a\\;b"], ids=["quote", "double", "brace", "backslash"])
def test_driver_cannot_carry_a_semicolon(address: Db2Address, connection: Connection, quoted: str) -> None:
    """This is why such a password is refused. If a new driver can carry it, this test fails and the refusal can go."""
    import ibm_db

    connection.cursor().execute("CALL SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY('derby.user.semi', 'a;b')")
    dsn = replace(address, user="semi", password="PLACE").dsn().replace("PLACE", quoted)
    with pytest.raises(Exception, match="SQL30082N"):
        ibm_db.connect(dsn, "", "")


def test_wrong_password_is_a_configuration_error_without_the_password(address: Db2Address) -> None:
    with pytest.raises(ConfigurationError, match="refuses the login") as caught:
        Source(replace(address, password="hush-hush")).rows(ONE)
    assert "hush" not in str(caught.value)


def test_unknown_database_is_named(address: Db2Address) -> None:
    with pytest.raises(ConfigurationError, match=r"no database of that name: .*/NOPE"):
        Source(replace(address, database="NOPE")).rows(ONE)


@pytest.mark.parametrize("elsewhere", [{"port": 1}, {"host": "no.such.host.invalid"}])
def test_unreachable_server_is_distinguished(address: Db2Address, elsewhere: dict[str, Any]) -> None:
    with pytest.raises(UnreachableError, match="cannot be reached"):
        Source(replace(address, options=QUICK, **elsewhere)).rows(ONE)


def test_connection_opens_when_needed_and_again_after_an_error(address: Db2Address) -> None:
    with Source(address) as source:
        with pytest.raises(SourceError, match="answered"):
            source.rows(Query("SELECT NOPE FROM SYSIBM.SYSDUMMY1"))
        assert source.rows(ONE) == [(1,)]
        source.close()
        assert source.rows(ONE) == [(1,)]


def test_server_that_came_back_is_reached_at_the_next_call(silent_sandbox: Sandbox, address: Db2Address) -> None:
    derby, database = silent_sandbox.state.derby_port, silent_sandbox.database
    with Shim(derby, database) as before:
        source = Source(replace(address, port=before.port, options=QUICK))
        assert source.rows(ONE) == [(1,)]
    with pytest.raises(UnreachableError):
        source.rows(ONE)
    with Shim(derby, database, before.port):
        assert source.rows(ONE) == [(1,)]
        source.close()


def test_reads_hold_no_lock_after_they_return(address: Db2Address, connection: Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE LOCKED (ID INTEGER)")
    cursor.execute("INSERT INTO LOCKED VALUES 1")
    with Source(address) as source:
        assert source.rows(Query("SELECT ID FROM LOCKED WITH RR")) == [(1,)]
        cursor.execute("DELETE FROM LOCKED")  # waits for a lock, in vain, if the read's transaction were still open


def test_parameters_are_bound(address: Db2Address) -> None:
    with Source(address) as source:
        assert source.rows(Query("SELECT 1 FROM SYSIBM.SYSDUMMY1 WHERE IBMREQD = ?", ("Y",))) == [(1,)]
        assert source.rows(Query("SELECT 1 FROM SYSIBM.SYSDUMMY1 WHERE IBMREQD = ?", ("' OR 1=1 --",))) == []


def test_jdbc_url_equals_that_of_the_sandbox(silent_sandbox: Sandbox, address: Db2Address) -> None:
    assert address.jdbc_url() == silent_sandbox.jdbc_url()
