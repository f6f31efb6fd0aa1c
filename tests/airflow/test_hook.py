import json
from typing import Any

import pytest
from airflow.sdk.execution_time import supervisor
from support.airflow_fixtures import Connect

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.hooks.db2cdc import Db2CdcHook
from airflow_provider_db2cdc.source.address import Db2Address


def address(connect: Connect, **fields: Any) -> Db2Address:
    return Db2CdcHook(connect(**fields)).address()


def test_connection_of_the_official_provider_becomes_an_address(connect: Connect) -> None:
    found = address(connect, port=50001, password="pw")
    assert (found.host, found.port, found.database, found.user, found.password) == (
        "db2.example",
        50001,
        "SALES",
        "ann",
        "pw",
    )
    assert "PWD=pw;" in found.dsn()
    assert found.jdbc_url() == "jdbc:db2://db2.example:50001/SALES"


@pytest.mark.parametrize("lacking", [{"password": ""}, {"login": None}], ids=str)
def test_a_connection_without_a_login_is_refused(connect: Connect, lacking: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="connection 'db2_test' has no login or no password"):
        address(connect, extra={"Authentication": "KERBEROS"}, **lacking)


@pytest.mark.parametrize("password", ["a=b", "it's", "{x}", "}{y", 'q"q', "ä€", "p%40", "a b"])
def test_password_arrives_as_it_is(connect: Connect, password: str) -> None:
    found = address(connect, password=password)
    assert found.password == password
    assert f"PWD={password};" in found.dsn()
    assert password not in found.jdbc_url()
    assert password not in repr(found)


def test_semicolon_in_the_password_is_refused_and_injects_nothing(connect: Connect) -> None:
    found = address(connect, password="p;SECURITY=SSL")
    with pytest.raises(ConfigurationError, match="the password holds ';'") as refused:
        found.dsn()
    assert "SECURITY=SSL" not in str(refused.value)


def test_tls_of_the_connection_goes_for_both_drivers(connect: Connect) -> None:
    found = address(connect, extra={"SECURITY": "SSL", "SSLServerCertificate": "/etc/db2.crt"})
    assert "Security=SSL;SSLServerCertificate=/etc/db2.crt;" in found.dsn()
    assert found.jdbc_url().endswith(":sslConnection=true;sslCertLocation=/etc/db2.crt;")


def test_certificate_may_lie_elsewhere_on_sparks_machines(connect: Connect) -> None:
    extra = {"SECURITY": "SSL", "SSLServerCertificate": "/etc/db2.crt", "sslCertLocation": "/spark/db2.crt"}
    found = address(connect, extra=extra)
    assert "SSLServerCertificate=/etc/db2.crt;" in found.dsn()
    assert "sslCertLocation=/spark/db2.crt;" in found.jdbc_url()


def test_tls_without_a_certificate_is_tls(connect: Connect) -> None:
    found = address(connect, extra={"security": "ssl", "SSLServerCertificate": ""})
    assert "Security=SSL;" in found.dsn()
    assert "sslConnection=true;" in found.jdbc_url()


@pytest.mark.parametrize(
    ("extra", "problem"),
    [({"SSLServerCertificate": "/etc/db2.crt"}, "without SECURITY"), ({"SECURITY": "TLS"}, "SECURITY is 'TLS'")],
)
def test_half_a_tls_setting_never_means_plain_text(connect: Connect, extra: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'db2_test': .*{problem}"):
        address(connect, extra=extra)


def test_extras_are_taken_by_name_and_go_where_they_belong(connect: Connect) -> None:
    found = address(
        connect, extra={"CurrentSchema": "ANN", "CONNECTTIMEOUT": 7, "ArrayInputChain": 0, "ProgramName": None}
    )
    assert "CurrentSchema=ANN;" in found.dsn()
    assert "ConnectTimeout=7;" in found.dsn()
    assert "ArrayInputChain=0;" in found.dsn()
    assert "ProgramName" not in found.dsn()
    assert found.jdbc_url() == "jdbc:db2://db2.example:50000/SALES:currentSchema=ANN;"


def test_other_extras_are_left_out_and_named(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    found = address(connect, extra={"PWD": "other", "asn_schema": "X", "PROTOCOL": "IPC"})
    assert "other" not in found.dsn()
    assert "IPC" not in found.dsn()
    assert "extras=PROTOCOL, PWD, asn_schema" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"conn_type": "postgres"}, "has type 'postgres'"), ({"schema": None}, "database ''")],
)
def test_connection_that_cannot_be_meant_is_named(connect: Connect, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'db2_test'.*{problem}"):
        address(connect, **fields)


def test_missing_connection_is_named_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"no connection 'nowhere'\. Create it"):
        Db2CdcHook("nowhere").address()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"conn_type": "ibmdb2", "password": "hush",}', "JSONDecodeError"),
        ("ibmdb2://ann:hu#sh@h:port/D", "ValueError"),
    ],
)
def test_connection_that_cannot_be_read_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, text: str, kind: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DB2_ODD", text)
    with pytest.raises(ConfigurationError) as refused:
        Db2CdcHook("db2_odd").address()
    assert refused.value.problem == f"connection 'db2_odd' of $AIRFLOW_CONN_DB2_ODD cannot be read ({kind})"
    assert "hush" not in str(refused.value)


class SealedBackend:
    """A secrets backend that is out of reach."""

    def get_connection(self, conn_id: str) -> None:
        raise PermissionError("hush")


def test_secrets_backend_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "ensure_secrets_backend_loaded", lambda: [SealedBackend()])
    with pytest.raises(
        ConfigurationError, match=r"SealedBackend could not be asked for it \(PermissionError\)"
    ) as caught:
        Db2CdcHook("db2_odd").address()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("extra", ["{'SECURITY': 'SSL'}", '["SECURITY"]'])
def test_extra_that_is_no_json_object_never_means_plain_text(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    connection = {"conn_type": "ibmdb2", "host": "h", "schema": "D", "login": "ann", "password": "pw", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_DB2_ODD", json.dumps(connection))
    with pytest.raises(ConfigurationError, match="the extra of connection 'db2_odd' is not a JSON object"):
        Db2CdcHook("db2_odd").address()
