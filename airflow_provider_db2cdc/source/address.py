"""Where a Db2 database is, and what both of IBM's drivers are told to reach it."""

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
    # By default Db2 waits for ever: for a catalog's rows, say, behind a definition that nobody commits.
    "LockTimeout": "60",
    # As Spark's reads ask: the server's DB2_SKIPDELETED and its like then leave no committed row out.
    "ConcurrentAccessResolution": "1",
}
"""What the CLI driver is told where the user says nothing; times are seconds."""

CLI_OPTIONS = frozenset({
    "ArrayInputChain", "Authentication", "ClientAcctStr", "ClientApplName", "ClientEncAlg", "ClientUserID",
    "ClientWrkStnName", "ConcurrentAccessResolution", "ConnectTimeout", "CurrentSchema", "EnableACR", "EnableWLB",
    "KRBPlugin", "LockTimeout", "ProgramName", "QueryTimeoutInterval", "ReceiveTimeout", "SSLClientHostnameValidation",
    "SSLClientKeystash", "SSLClientKeystoredb", "TargetPrincipal", "TcpipConnectTimeout", "TLSVersion",
})  # fmt: skip
"""Keywords of the CLI driver that a user may set.

SSLClientLabel is not among them: JCC would need the client's certificate in a key store with a password.
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
"""Properties of the JDBC driver that a user may set: none holds a secret, for the URL is shown in logs and specs."""

SECURITY_MECHANISMS = {"SERVER": "3", "KERBEROS": "11"}
"""JCC's numbers for the CLI driver's words; SERVER is user and clear text password, never JCC's own choice."""

TLS_VERSIONS = {"TLSV12": "TLSv1.2", "TLSV13": "TLSv1.3"}
"""The TLS versions as the CLI driver and JCC spell them."""

HOSTNAME_VALIDATION = ("BASIC", "OFF")
"""What JCC knows: it takes any other text, `true` and `Basic` among them, for OFF."""


@dataclass(frozen=True)
class Tls:
    """An encrypted connection, trusting what the drivers trust by themselves, or this certificate.

    `certificate` is the path of the server's or its authority's certificate where this process runs,
    `jdbc_certificate` its path where Spark's driver and executors run, when that is another one.
    """

    certificate: str = ""
    jdbc_certificate: str = ""


@dataclass(frozen=True)
class Db2Address:
    """A database, the user to be there, and the drivers' options by name (CLI_OPTIONS and JDBC_OPTIONS)."""

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
        """Return the connection string for ibm_db; it holds the password.

        The CLI driver takes all up to the next ';' as the value, without its outer blanks, and knows neither quotes
        nor braces around it; passing the password to SQLConnect by itself makes no difference. IBM documents the ';'.

        :raises ConfigurationError: a value that the driver cannot carry, by the keyword's name.
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

        :raises ConfigurationError: a value that a URL cannot carry, by the property's name.
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
        """Refuse a GSKit key store by itself: JCC would trust other certificates than ibm_db does."""
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
    """Return JCC's words for what the CLI driver is told of TLS."""
    known = {"sslConnection": "true", "sslCertLocation": tls.jdbc_certificate or tls.certificate}
    if validation := options.get("SSLClientHostnameValidation", ""):
        # The CLI driver compares names unless it is told OFF, whatever else it is told.
        known["sslClientHostnameValidation"] = "OFF" if validation.upper() == "OFF" else "BASIC"
    if version := options.get("TLSVersion", ""):
        known["sslVersion"] = TLS_VERSIONS[_known("TLSVersion", version, TLS_VERSIONS)]
    return known


def _known(name: str, value: str, known: Iterable[str] = HOSTNAME_VALIDATION) -> str:
    if value.upper() not in known:
        raise ConfigurationError(f"{name} is {value!r}", f"Known are: {', '.join(known)}.")
    return value.upper()


def _spelled(defaults: Mapping[str, str], given: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Return the options in the drivers' own spelling."""
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
