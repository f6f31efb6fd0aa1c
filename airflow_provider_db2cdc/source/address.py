"""The address of a Db2 database, and the options with which both of IBM's drivers connect to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_provider_db2cdc.errors import ConfigurationError

HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[\w.%]*")
"""A name, or an IPv4 or IPv6 address."""
DATABASE = re.compile(r"[^\s/;:?='\"]+")
DEFAULT_PORT = 50000
CLI_DEFAULTS = {
    "ConnectTimeout": "30",
    # Db2's default is to wait for ever. A catalog read, for one, waits for an uncommitted definition.
    "LockTimeout": "60",
    # Spark's reads ask for the same. With it, DB2_SKIPDELETED and similar settings of the server hide no committed row.
    "ConcurrentAccessResolution": "1",
}
"""The CLI driver's options where the user sets none. Times are in seconds."""

CLI_OPTIONS = frozenset({
    "ArrayInputChain", "Authentication", "ClientAcctStr", "ClientApplName", "ClientEncAlg", "ClientUserID",
    "ClientWrkStnName", "ConcurrentAccessResolution", "ConnectTimeout", "CurrentSchema", "EnableACR", "EnableWLB",
    "KRBPlugin", "LockTimeout", "ProgramName", "QueryTimeoutInterval", "ReceiveTimeout", "SSLClientHostnameValidation",
    "SSLClientKeystash", "SSLClientKeystoredb", "TargetPrincipal", "TcpipConnectTimeout", "TLSVersion",
})  # fmt: skip
"""Keywords of the CLI driver that a user may set.

SSLClientLabel is not one of them. JCC would need the client's certificate in a key store with a password.
"""

JDBC_OPTIONS = frozenset({
    "blockingReadConnectionTimeout", "clientApplicationInformation", "clientProgramName",
    "clientRerouteAlternatePortNumber", "clientRerouteAlternateServerName", "clientUser", "clientWorkstation",
    "commandTimeout", "connectionTimeout", "currentLockTimeout", "currentPackageSet", "currentSchema",
    "enableSeamlessFailover", "enableSysplexWLB", "encryptionAlgorithm", "fullyMaterializeLobData", "keepAliveTimeOut",
    "kerberosServerPrincipal", "loginTimeout", "maxRetriesForClientReroute", "memberConnectTimeout",
    "progressiveStreaming", "queryDataSize", "retrieveMessagesFromServerOnGetMessage", "retryIntervalForClientReroute",
    "securityMechanism", "sslCertLocation", "sslCipherSuites", "sslClientHostnameValidation", "sslTrustStoreLocation",
    "sslTrustStoreType", "sslVersion",
})  # fmt: skip
"""Properties of the JDBC driver that a user may set.

None holds a secret, because logs and job specs show the URL.
"""

SECURITY_MECHANISMS = {"SERVER": "3", "KERBEROS": "11"}
"""JCC's numbers for the CLI driver's values of Authentication.

SERVER means user and clear text password. JCC never chooses it by itself.
"""

TLS_VERSIONS = {"TLSV12": "TLSv1.2", "TLSV13": "TLSv1.3"}
"""The TLS versions: the CLI driver's spelling to JCC's."""

HOSTNAME_VALIDATION = ("BASIC", "OFF")
"""The values that JCC knows. It takes every other text for OFF, even `true` and `Basic`."""


@dataclass(frozen=True)
class Tls:
    """An encrypted connection that trusts a certificate, or by default what the drivers trust.

    `certificate` is a path on this machine. The file holds the certificate of the server or of its authority.
    `jdbc_certificate` is the file's path on the machines of Spark's driver and executors, if it differs.
    """

    certificate: str = ""
    jdbc_certificate: str = ""


@dataclass(frozen=True)
class Db2Address:
    """A database, the user to log in, and the drivers' options by name (CLI_OPTIONS and JDBC_OPTIONS)."""

    host: str
    database: str
    user: str = ""
    password: str = field(default="", repr=False)
    port: int = DEFAULT_PORT
    tls: Tls | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    jdbc_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_known("ibm_db", self.options, CLI_OPTIONS)
        _check_known("JDBC", self.jdbc_options, JDBC_OPTIONS)
        if not HOST.fullmatch(self.host) or not DATABASE.fullmatch(self.database):
            raise ConfigurationError(
                f"host {self.host!r} and database {self.database!r} are not a host's and a database's name",
                "Give each by itself: the host without port and path, the database by its name at the server.",
            )
        self._check_trust()

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"

    def dsn(self) -> str:
        """Return the connection string for ibm_db. It holds the password.

        The CLI driver reads a value up to the next ';' and strips its outer blanks. It knows no quotes or braces around
        a value. A password that is passed to SQLConnect by itself is read the same way. IBM documents the ';'.

        :raises ConfigurationError: when the driver cannot carry a value. The text names the keyword.
        """
        keywords = {
            "DATABASE": self.database,
            "HOSTNAME": self.host,
            "PORT": str(self.port),
            "PROTOCOL": "TCPIP",
            "UID": self.user,
            "PWD": self.password,
            "TxnIsolation": "2",
            **_spelled(CLI_DEFAULTS, self.options, CLI_OPTIONS),
            **self._cli_tls(),
        }
        return "".join(f"{name}={_carried(name, value)};" for name, value in keywords.items() if value)

    def jdbc_url(self) -> str:
        """Return the URL for IBM's JDBC driver, without user and password.

        :raises ConfigurationError: when the URL cannot carry a value. The text names the property.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        given = _spelled({}, self.jdbc_options, JDBC_OPTIONS)
        properties = {**self._jdbc_security(), **given}
        if (validation := properties.get("sslClientHostnameValidation")) is not None:
            properties["sslClientHostnameValidation"] = _known("sslClientHostnameValidation", validation)
        listed = "".join(f"{name}={_carried(name, value)};" for name, value in properties.items() if value)
        return f"jdbc:db2://{host}:{self.port}/{self.database}" + (f":{listed}" if listed else "")

    def _cli_tls(self) -> dict[str, str]:
        return {"Security": "SSL", "SSLServerCertificate": self.tls.certificate} if self.tls else {}

    def _jdbc_security(self) -> dict[str, str]:
        options = _spelled({}, self.options, CLI_OPTIONS)
        security = {"securityMechanism": SECURITY_MECHANISMS.get(options.get("Authentication", "").upper(), "")}
        return {**security, **_jdbc_tls(self.tls, options)} if self.tls else security

    def _check_trust(self) -> None:
        """Reject a GSKit key store without a certificate for JCC.

        JCC cannot read the key store, so it would trust other certificates than ibm_db does.
        """
        is_stored = any(name.lower() == "sslclientkeystoredb" for name in self.options)
        is_named = self.tls and (self.tls.jdbc_certificate or self.tls.certificate)
        is_given = {name.lower() for name in self.jdbc_options} & {"ssltruststorelocation", "sslcertlocation"}
        if is_stored and not is_named and not is_given:
            raise ConfigurationError(
                "SSLClientKeystoredb is set, which the JDBC driver cannot read",
                "Also name the certificate for Spark: ssl.certificate (in a connection SSLServerCertificate), or the "
                "JDBC option sslTrustStoreLocation.",
            )


def _jdbc_tls(tls: Tls, options: Mapping[str, str]) -> dict[str, str]:
    """Return the CLI driver's TLS options as JCC's properties."""
    properties = {"sslConnection": "true", "sslCertLocation": tls.jdbc_certificate or tls.certificate}
    if validation := options.get("SSLClientHostnameValidation", ""):
        # The CLI driver checks the host name for every value but OFF.
        properties["sslClientHostnameValidation"] = "OFF" if validation.upper() == "OFF" else "BASIC"
    if version := options.get("TLSVersion", ""):
        properties["sslVersion"] = TLS_VERSIONS[_known("TLSVersion", version, TLS_VERSIONS)]
    return properties


def _known(name: str, value: str, known: Iterable[str] = HOSTNAME_VALIDATION) -> str:
    if value.upper() not in known:
        raise ConfigurationError(f"{name} is {value!r}", f"Known are: {', '.join(known)}.")
    return value.upper()


def _spelled(defaults: Mapping[str, str], given: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Return the options, each under the driver's own spelling of its name."""
    spelling = {name.lower(): name for name in known}
    return {**defaults, **{spelling[name.lower()]: str(value) for name, value in given.items()}}


def _check_known(driver: str, given: Mapping[str, str], known: Iterable[str]) -> None:
    names = {name.lower() for name in known}
    if unknown := [name for name in given if name.lower() not in names]:
        raise ConfigurationError(
            f"{', '.join(map(repr, sorted(unknown)))} cannot be set for the {driver} driver",
            f"Known are: {', '.join(sorted(known))}.",
        )


def _carried(name: str, value: str) -> str:
    if ";" in value or value != value.strip() or not value.isprintable():
        what = "the password" if name == "PWD" else f"{name}"
        raise ConfigurationError(
            f"{what} holds ';', a control character, or a blank at an end, which Db2's drivers cannot carry",
            "Choose another value (IBM documents ';' as unsupported in passwords of its drivers).",
        )
    return value
