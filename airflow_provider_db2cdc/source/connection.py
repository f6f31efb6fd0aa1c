"""A connection to Db2 for reads: opened when first needed, with autocommit, read committed."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from types import TracebackType
from typing import Any, Self

import ibm_db_dbi

from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError, SourceError
from airflow_provider_db2cdc.source import driver
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.sql.driver_error import UnreachableError, explain
from airflow_provider_db2cdc.sql.query import Query

log = logging.getLogger(__name__)

TLS_TIMEOUT_S = 5.0


class Source:
    """The source database. As a context manager it closes its connection at the end.

    A read after that opens a new connection.
    """

    def __init__(self, address: Db2Address) -> None:
        self.address = address
        self._connection: Any = None

    @property
    def jdbc_url(self) -> str:
        """The JDBC URL for Spark, without user and password."""
        return self.address.jdbc_url()

    @property
    def database(self) -> str:
        """The database's name."""
        return self.address.database

    def rows(self, query: Query) -> list[tuple[Any, ...]]:
        """Run the query in a transaction of its own and return all rows.

        Bit data come as bytes, timestamps as naive datetimes. LOB columns are not supported. After an error the next
        call opens a new connection, so a retry only repeats the call.

        :raises ConfigurationError: when the address or the login is wrong.
        :raises SourceError: when Db2 cannot be reached or rejects the statement. The text never holds the DSN.
        """
        try:
            cursor = self._open().cursor()
            try:
                driver.execute(cursor, query.text, query.params)
                return [tuple(row) for row in cursor.fetchall()]
            finally:
                _free(cursor)
        except (ibm_db_dbi.Error, ibm_db_dbi.Warning) as error:
            self.close()
            raise self._explained(error) from error

    def close(self) -> None:
        """Close the connection if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(ibm_db_dbi.Error):
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _explained(self, error: Exception) -> Db2CdcError:
        known = explain(error, str(self.address))
        is_plain = self.address.tls is None
        if is_plain and isinstance(known, UnreachableError) and _speaks_tls(self.address.host, self.address.port):
            return ConfigurationError(
                f"{self.address} speaks TLS, and the connection is set to do without",
                "Set database.ssl to true (in an Airflow connection the extra SECURITY to SSL), or give Db2's port "
                "without TLS.",
            )
        return known

    def _open(self) -> Any:
        if self._connection is None:
            connection = driver.connect(self.address.dsn())
            if not connection.set_autocommit(True):
                raise SourceError(f"the driver refuses autocommit at {self.address}")
            self._connection = connection
            log.info("connected: source=%s", self.address)
        return self._connection


def _speaks_tls(host: str, port: int) -> bool:
    """Whether the port answers a TLS handshake, with any certificate. The drivers only say that it hung up."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), TLS_TIMEOUT_S) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False


def _free(cursor: Any) -> None:
    """Free the statement while its connection is open.

    Freed later, ibm_db frees whatever statement has the same handle by then.
    """
    with contextlib.suppress(ibm_db_dbi.Error):
        cursor.close()
