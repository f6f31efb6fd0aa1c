from typing import Any

import pytest

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.address import Db2Address, Tls

ADDRESS = Db2Address("db2.example", "SALES", "reader", "secret")


def test_dsn_names_everything_and_reads_committed() -> None:
    assert ADDRESS.dsn() == (
        "DATABASE=SALES;HOSTNAME=db2.example;PORT=50000;PROTOCOL=TCPIP;UID=reader;PWD=secret;"
        "TxnIsolation=2;ConnectTimeout=30;LockTimeout=60;ConcurrentAccessResolution=1;"
    )


def test_password_shows_in_no_text_but_the_dsn() -> None:
    assert "secret" not in repr(ADDRESS)
    assert "secret" not in str(ADDRESS)
    assert "secret" not in ADDRESS.jdbc_url()
    assert "reader" not in ADDRESS.jdbc_url()


@pytest.mark.parametrize("password", ["a=b", "a'b", 'a"b', "{a}", "a}b{c", "'a'", "inner blank", "pä€ö"])
def test_password_goes_into_the_dsn_as_it_is(password: str) -> None:
    assert f"PWD={password};" in Db2Address("h", "D", "u", password).dsn()


@pytest.mark.parametrize("password", ["hush;x", " hush", "hush ", "hush\nx", "hush\0x"])
def test_password_that_the_driver_cannot_carry_is_refused_unshown(password: str) -> None:
    with pytest.raises(ConfigurationError, match="the password holds") as caught:
        Db2Address("h", "D", "u", password).dsn()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("part", [{"user": "u;PWD=x"}, {"options": {"ProgramName": "a;HOSTNAME=b"}}])
def test_no_value_can_smuggle_in_another_keyword(part: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="cannot carry"):
        Db2Address(**{"host": "h", "database": "D", **part}).dsn()


@pytest.mark.parametrize(
    ("host", "database"),
    [("", "D"), ("h", ""), ("h:50000", "D"), ("h/x", "D"), ("h;x", "D"), ("::1;x", "D"), ("h", "D:x=y;"), ("h", "D/x")],
)
def test_host_and_database_are_names(host: str, database: str) -> None:
    with pytest.raises(ConfigurationError, match="are not a host's and a database's name"):
        Db2Address(host, database)


def given(kind: str, name: str, value: str) -> dict[str, Any]:
    """Return an option as an argument of an address."""
    return {kind: {name: value}}


@pytest.mark.parametrize("kind", ["options", "jdbc_options"])
@pytest.mark.parametrize("name", ["PWD", "password", "traceFile", "sslTrustStorePassword"])
def test_unknown_option_is_refused_by_name(kind: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Db2Address("h", "D", **given(kind, name, "x"))


def test_options_are_spelled_as_the_drivers_spell_them() -> None:
    options = {"connecttimeout": "5", "LOCKTIMEOUT": "-1"}
    address = Db2Address("h", "D", options=options, jdbc_options={"SSLVERSION": "TLSv1.2"})
    assert "ConnectTimeout=5;LockTimeout=-1;" in address.dsn()
    assert address.jdbc_url() == "jdbc:db2://h:50000/D:sslVersion=TLSv1.2;"


def test_jdbc_url_without_properties_ends_with_the_database() -> None:
    assert ADDRESS.jdbc_url() == "jdbc:db2://db2.example:50000/SALES"


def test_both_drivers_use_server_authentication() -> None:
    address = Db2Address("h", "D", options={"AUTHENTICATION": "server"})
    assert "Authentication=server;" in address.dsn()
    assert address.jdbc_url() == "jdbc:db2://h:50000/D:securityMechanism=3;"


def test_configured_security_mechanism_wins() -> None:
    address = Db2Address("h", "D", options={"Authentication": "SERVER"}, jdbc_options={"securityMechanism": "7"})
    assert address.jdbc_url() == "jdbc:db2://h:50000/D:securityMechanism=7;"


def test_both_drivers_use_tls_each_with_its_own_path() -> None:
    address = Db2Address("h", "D", tls=Tls("/worker/db2.arm", "/executor/db2.arm"))
    assert address.dsn().endswith("Security=SSL;SSLServerCertificate=/worker/db2.arm;")
    assert address.jdbc_url() == "jdbc:db2://h:50000/D:sslConnection=true;sslCertLocation=/executor/db2.arm;"


def test_tls_without_a_certificate_uses_the_drivers_trust_stores() -> None:
    address = Db2Address("h", "D", tls=Tls())
    assert address.dsn().endswith("Security=SSL;")
    assert address.jdbc_url() == "jdbc:db2://h:50000/D:sslConnection=true;"


def test_ipv6_host_is_bracketed_in_the_url_only() -> None:
    address = Db2Address("::1", "D")
    assert "HOSTNAME=::1;" in address.dsn()
    assert address.jdbc_url() == "jdbc:db2://[::1]:50000/D"


@pytest.mark.parametrize(
    ("option", "value", "url"),
    [
        ("SSLClientHostnameValidation", "OFF", "sslClientHostnameValidation=OFF;"),
        ("sslclienthostnamevalidation", "off", "sslClientHostnameValidation=OFF;"),
        ("SSLClientHostnameValidation", "Basic", "sslClientHostnameValidation=BASIC;"),
        ("TLSVersion", "TLSV12", "sslVersion=TLSv1.2;"),
        ("TLSVersion", "TLSV13", "sslVersion=TLSv1.3;"),
    ],
)
def test_setting_of_tls_is_carried_to_the_jdbc_driver(option: str, value: str, url: str) -> None:
    address = Db2Address("h", "D", tls=Tls(), options={option: value})
    assert address.jdbc_url() == f"jdbc:db2://h:50000/D:sslConnection=true;{url}"
    assert f"={value};" in address.dsn()


def test_a_tls_setting_of_the_jdbc_driver_wins_in_its_spelling() -> None:
    given = {"sslClientHostnameValidation": "off", "sslVersion": "TLSv1.3"}
    options = {"SSLClientHostnameValidation": "Basic", "TLSVersion": "TLSV12"}
    address = Db2Address("h", "D", tls=Tls(), options=options, jdbc_options=given)
    assert address.jdbc_url().endswith(":sslConnection=true;sslClientHostnameValidation=OFF;sslVersion=TLSv1.3;")


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("jdbc_options", "sslClientHostnameValidation", "true"), ("options", "TLSVersion", "TLSV1")],
)
def test_value_that_a_driver_would_take_for_another_is_refused(kind: str, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is '{value}'. Known are: "):
        Db2Address("h", "D", tls=Tls(), **given(kind, name, value)).jdbc_url()


def test_key_store_of_ibm_db_needs_a_certificate_for_the_jdbc_driver() -> None:
    stored = {"SSLClientKeystoredb": "/k.kdb", "SSLClientKeystash": "/k.sth"}
    with pytest.raises(ConfigurationError, match=r"SSLClientKeystoredb is set.*Also name the certificate for Spark"):
        Db2Address("h", "D", tls=Tls(), options=stored)
    Db2Address("h", "D", tls=Tls(jdbc_certificate="/spark/db2.crt"), options=stored)
    Db2Address("h", "D", tls=Tls(), options=stored, jdbc_options={"sslTrustStoreLocation": "/cacerts"})
