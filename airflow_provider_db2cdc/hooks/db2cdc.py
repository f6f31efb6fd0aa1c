"""The hook that reads the source's address from an Airflow connection."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook, Connection
from airflow.sdk.execution_time import supervisor

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.address import CLI_OPTIONS, DEFAULT_PORT, JDBC_OPTIONS, Db2Address, Tls

if TYPE_CHECKING:
    from airflow_provider_db2cdc.source.connection import Source

CONNECTION_TYPE = "ibmdb2"
TLS_EXTRAS = frozenset({"security", "sslservercertificate", "sslcertlocation"})


class Db2CdcHook(BaseHook):
    """Read what both drivers need to reach Db2 from a connection of the official IBM Db2 provider.

    The connection stays as it is (type ``ibmdb2``, database in ``schema``). Its extras may have the options that
    ``source.address`` lists. ``SECURITY`` = ``SSL`` with ``SSLServerCertificate`` sets up TLS, for JDBC too.
    ``sslCertLocation`` is the certificate's path on Spark's machines, if it differs.

    :param db2_conn_id: The connection's id.
    """

    conn_name_attr = "db2_conn_id"
    default_conn_name = "db2_default"
    conn_type = CONNECTION_TYPE
    hook_name = "IBM Db2"

    def __init__(self, db2_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.db2_conn_id = db2_conn_id

    def address(self) -> Db2Address:
        """Return the connection's address.

        :raises ConfigurationError: when the connection is missing, has another type, or holds wrong values.
        """
        try:
            connection = self.get_connection(self.db2_conn_id)
        except AirflowNotFoundException as error:
            raise missing_connection(self.db2_conn_id) from error
        address = read_address(connection)
        if ignored := unknown_extras(connection):
            self.log.warning("extras not used: connection=%s extras=%s", self.db2_conn_id, ", ".join(ignored))
        return address

    def source(self) -> Source:
        """Return the source, not yet connected. Close it, or use it as a context manager."""
        # ibm_db has no wheel for every platform. Callers that only need the address must work without it.
        from airflow_provider_db2cdc.source.connection import Source

        return Source(self.address())

    def jdbc_url(self) -> str:
        """Return the URL for IBM's JDBC driver, without user and password."""
        return self.address().jdbc_url()

    def get_conn(self) -> Any:
        """Return a new `ibm_db_dbi` connection, which the caller must close."""
        from airflow_provider_db2cdc.source.driver import connect

        return connect(self.address().dsn())


def read_address(connection: Connection) -> Db2Address:
    """Return the address from a connection: host, database, login, TLS and the drivers' options.

    :raises ConfigurationError: when the connection has another type, or holds wrong values.
    """
    conn_id = connection.conn_id
    if connection.conn_type != CONNECTION_TYPE:
        raise ConfigurationError(
            f"connection {conn_id!r} has type {connection.conn_type!r}, expected {CONNECTION_TYPE!r}",
            "Give a connection of the IBM Db2 provider.",
        )
    if not (connection.login and connection.password):
        raise ConfigurationError(
            f"connection {conn_id!r} has no login or no password",
            "Give both: without a password (by a Kerberos ticket, a client's certificate) neither driver is logged in.",
        )
    extras = _extras(connection)
    try:
        return Db2Address(
            host=connection.host or "localhost",
            database=connection.schema or "",
            user=connection.login or "",
            password=connection.password or "",
            port=connection.port or DEFAULT_PORT,
            tls=_tls(extras),
            options=_chosen(extras, CLI_OPTIONS),
            jdbc_options=_chosen(extras, JDBC_OPTIONS),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"connection {conn_id!r}: {error.problem}", error.remedy) from error


def unknown_extras(connection: Connection) -> list[str]:
    """Return the names of a connection's extras that are not used."""
    known = TLS_EXTRAS | {name.lower() for name in CLI_OPTIONS | JDBC_OPTIONS}
    return sorted(name for name in _extras(connection) if name.lower() not in known)


def missing_connection(conn_id: str) -> ConfigurationError:
    """Return the error for a connection that Airflow does not find, because it is missing or cannot be read."""
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    for backend, kind in _failing_backends(conn_id).items():
        if variable in os.environ and backend == "EnvironmentVariablesBackend":
            return ConfigurationError(
                f"connection {conn_id!r} of ${variable} cannot be read ({kind})",
                "Write it as JSON, or as a URI in which special characters of login and password are percent-encoded.",
            )
        return ConfigurationError(
            f"connection {conn_id!r} is not found, and {backend} could not be asked for it ({kind})",
            "See what that secrets backend says in the task's log at level DEBUG.",
        )
    return ConfigurationError(
        f"there is no connection {conn_id!r}",
        f"Create it under Admin > Connections, or with `airflow connections add {conn_id}`.",
    )


def _failing_backends(conn_id: str) -> dict[str, str]:
    """Return the secrets backends that fail for a connection, each with its error's class.

    The text of the error may hold secrets. Airflow ignores such a backend without a message.
    """
    failing: dict[str, str] = {}
    for backend in supervisor.ensure_secrets_backend_loaded():
        try:
            backend.get_connection(conn_id=conn_id)
        except Exception as error:
            failing[type(backend).__name__] = type(error).__name__
    return failing


def _extras(connection: Connection) -> dict[str, str]:
    """Return the extras that are set, with values as the drivers write them.

    Airflow returns no extras if they are not a JSON object, and TLS would silently be off.

    :raises ConfigurationError: when they are not a JSON object.
    """
    try:
        given = json.loads(connection.extra or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ConfigurationError(
            f"the extra of connection {connection.conn_id!r} is not a JSON object",
            "Write it with double quotes around names and values.",
        )
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    return {name: value for name, value in text.items() if given[name] is not None and value}


def _chosen(extras: dict[str, str], names: frozenset[str]) -> dict[str, str]:
    known = {name.lower() for name in names} - TLS_EXTRAS
    return {name: value for name, value in extras.items() if name.lower() in known}


def _tls(extras: dict[str, str]) -> Tls | None:
    lower = {name.lower(): value for name, value in extras.items()}
    certificate = lower.get("sslservercertificate", "")
    match lower.get("security", "").upper():
        case "SSL":
            return Tls(certificate, lower.get("sslcertlocation", ""))
        case "" if certificate:
            raise ConfigurationError("SSLServerCertificate is set without SECURITY", "Set SECURITY to SSL.")
        case "":
            return None
        case security:
            raise ConfigurationError(f"SECURITY is {security!r}", "The one known value is SSL.")
