"""Both drivers at a TLS port: they get the same settings, and each failure names its cause."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.tls import certificates, tls_port

from airflow_provider_db2cdc.config.pipeline import SparkConfig
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError, SourceError
from airflow_provider_db2cdc.source.address import Db2Address, Tls
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql.driver_error import UnreachableError
from airflow_provider_db2cdc.sql.query import Query
from airflow_provider_db2cdc.submit.runner import Login, check_connection

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes certificates"),
]

ONE = Query("SELECT 1 FROM SYSIBM.SYSDUMMY1")
JARS = Path(__file__).parents[2] / "build" / "jars"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    certificates(folder)
    return folder


@pytest.fixture(scope="module")
def own(address: Db2Address, keys: Path) -> Iterator[int]:
    """The port of a server that shows its certificate with the intermediate one."""
    with tls_port(address.port, keys / "chain.pem", keys / "own.key") as port:
        yield port


@pytest.fixture(scope="module")
def bare(address: Db2Address, keys: Path) -> Iterator[int]:
    """The port of a server that shows only its own certificate."""
    with tls_port(address.port, keys / "own.pem", keys / "own.key") as port:
        yield port


@pytest.fixture(scope="module")
def other(address: Db2Address, keys: Path) -> Iterator[int]:
    """The port of a server with a certificate for another host."""
    with tls_port(address.port, keys / "other-chain.pem", keys / "other.key") as port:
        yield port


def of_ibm_db(address: Db2Address) -> Db2CdcError | None:
    try:
        with Source(address) as source:
            source.rows(ONE)
    except Db2CdcError as error:
        return error
    return None


def of_spark(address: Db2Address) -> Db2CdcError | None:
    try:
        check_connection(address.jdbc_url(), SparkConfig(jars=JARS), Login(address.user, address.password))
    except Db2CdcError as error:
        return error
    return None


def test_tls_port_is_named_if_tls_is_not_configured(address: Db2Address, own: int) -> None:
    with pytest.raises(ConfigurationError, match=r"speaks TLS, and .* Set database\.ssl to true"):
        Source(replace(address, port=own)).rows(ONE)


def test_port_without_tls_is_not_taken_for_a_tls_port(address: Db2Address) -> None:
    with pytest.raises(UnreachableError, match="cannot be reached"):
        Source(replace(address, port=1)).rows(ONE)


@pytest.mark.slow
def test_both_drivers_trust_the_root_and_take_the_same_settings(
    address: Db2Address, own: int, other: int, keys: Path
) -> None:
    trusting = replace(address, tls=Tls(str(keys / "root.pem")))
    assert of_ibm_db(replace(trusting, port=own)) is None
    assert of_spark(replace(trusting, port=own)) is None
    for driver in (of_ibm_db, of_spark):
        refused = driver(replace(trusting, port=other))
        assert refused is not None
        assert "is for another host name" in str(refused)
    careless = replace(trusting, port=other, options={**address.options, "SSLClientHostnameValidation": "OFF"})
    assert of_ibm_db(careless) is None
    assert of_spark(careless) is None


@pytest.mark.slow
def test_spark_explains_that_it_reads_only_the_first_certificate(address: Db2Address, bare: int, keys: Path) -> None:
    bundles = [replace(address, port=bare, tls=Tls(str(keys / f"{name}-first.pem"))) for name in ("middle", "root")]
    assert [of_ibm_db(bundle) for bundle in bundles] == [None, None]
    assert of_spark(bundles[0]) is None
    refused = of_spark(bundles[1])
    assert isinstance(refused, SourceError)
    assert "the TLS handshake with" in refused.problem
    assert "reads only the first certificate of the file" in refused.remedy


@pytest.mark.slow
def test_spark_explains_as_ibm_db_does_and_shows_no_secret(address: Db2Address, keys: Path) -> None:
    for wrong, words in (
        (replace(address, password="hush-hush"), "refuses the login"),
        (replace(address, port=1), "cannot be reached"),
        (replace(address, database="NOPE"), "no database of that name"),
        (replace(address, tls=Tls(str(keys / "none.pem"))), "certificate .* cannot be opened"),
    ):
        refused = of_spark(wrong)
        with pytest.raises(Db2CdcError, match=words):
            raise refused or AssertionError(words)
        assert "hush" not in repr(refused)


@pytest.mark.slow
def test_failed_start_of_spark_is_named_as_the_cause(address: Db2Address) -> None:
    with pytest.raises(SourceError, match=r"Spark cannot try its connection to the source: .*Master must"):
        check_connection(address.jdbc_url(), SparkConfig(jars=JARS, master="nonsense"), Login("u", "p"))
