"""Errors of IBM's drivers, ibm_db and JCC, explained for operators."""

from __future__ import annotations

import re

from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError, SourceError

SQLCODE = re.compile(r"(?:SQLCODE|ERRORCODE)[=:]\s*(-?\d+)")
MESSAGE_NUMBER = re.compile(r"\bSQL(\d{4,5})[NCW]\b")
CONTROL_TABLE = re.compile(r'"?(?P<schema>[^"\s.=]+)"?\."?(?:IBMSNAP|IBMQREP)_')
JCC_PREFIX = re.compile(r"^(?:\[[\w.]+\])+\s*(?:A communication error occurred .*? Message: )?")
MAX_TEXT = 400

UNREADABLE = ("CLI0157E", "Exception java.io.FileNotFoundException: Error opening socket")
"""The texts of ibm_db and JCC for a certificate's file that cannot be opened."""
LINK_FAILURE = "CLI0108E"
CONNECTION_LOST = (-1224, -30108)
"""SQLCODEs of a lost connection: the instance ended it, or it moved to another member and the work was rolled back."""
JCC_UNREACHABLE = ("Error opening socket", "unknown host")
JCC_TLS = ("PKIX", "SSL", "TLS", "certificate", "handshake")


class UnreachableError(SourceError):
    """Raised when there is no connection, so that no statement on any table can run."""


class LockedError(SourceError):
    """Raised when a statement waited too long for a lock, or in a deadlock. A retry may succeed."""


def explain(error: Exception, where: str) -> Db2CdcError:
    """Return the error to raise for ibm_db's error at `where` (host:port/database)."""
    text = " ".join(str(error).split())
    if known := known_error(text, where):
        return known
    return SourceError(f"Db2 at {where} answered: {_shortened(text)}", _explanation(sqlcode(text)))


def known_error(text: str, where: str) -> Db2CdcError | None:
    """Return the error that a driver's text at `where` means, or None for a text that is not explained here.

    An explained text quotes names and hosts, and never a value of a row. Other texts may quote values.
    """
    text = " ".join(text.split())
    if any(words in text for words in UNREADABLE):
        return ConfigurationError(
            f"the TLS certificate for {where} cannot be opened", "Check its path on the machine that runs this task."
        )
    code = sqlcode(text)
    match code:
        case -30082 | -4214:
            return ConfigurationError(
                f"{where} refuses the login: {_reason(text)}", "Check user and password of the connection."
            )
        case -30061 | -1013:
            return _unknown_database(where)
        case -4499 if "SQLSTATE=08004" in text:
            return _unknown_database(where)
        case -20576:
            return ConfigurationError(
                f"the TLS certificate of {where} is for another host name",
                "Connect by a name that the certificate holds. Or set SSLClientHostnameValidation to OFF: then both "
                "drivers accept any name.",
            )
        case _:
            return _explain_link(code, text, where) or _explain_statement(code, text, where)


def _explain_link(code: int | None, text: str, where: str) -> Db2CdcError | None:
    short = _shortened(text)
    is_tls = '"SSL"' in text if code in (-30081, -1336) else any(word in text for word in JCC_TLS)
    match code:
        case -30081 | -1336 | -4499 if is_tls:
            return UnreachableError(f"the TLS handshake with {where} failed ({short})", _tls_remedy(text))
        case -30081 | -1336 | -4222:
            return _unreachable(where, short)
        case -4499 if any(words in text for words in JCC_UNREACHABLE):
            return _unreachable(where, short)
    if LINK_FAILURE in text or code in (*CONNECTION_LOST, -4499):
        return UnreachableError(f"the connection to {where} broke off ({short})", "Try again.")
    return None


def _unreachable(where: str, text: str) -> UnreachableError:
    return UnreachableError(
        f"{where} cannot be reached ({text})",
        "Check host and port, that the instance listens on TCP/IP (DB2COMM, SVCENAME), and firewalls.",
    )


def _unknown_database(where: str) -> ConfigurationError:
    return ConfigurationError(
        f"the server has no database of that name: {where}", "Check the connection's database (schema) field."
    )


def _tls_remedy(text: str) -> str:
    if "validity check failed" in text or "CertificateExpired" in text:
        return "Renew the server's certificate: its time is over, or has not begun."
    if "PKIX" in text:
        return (
            "Give the server's certificate, or that of its authority. Spark's driver (JCC) reads only the first "
            "certificate of the file: put the one first that signed the server's."
        )
    return "Is the port Db2's TLS port (SSL_SVCENAME), and the certificate the server's or its authority's?"


def sqlcode(text: str) -> int | None:
    """Return the SQLCODE that the driver's text names, or None."""
    if code := SQLCODE.search(text):
        return int(code[1])
    number = MESSAGE_NUMBER.search(text)
    return -int(number[1]) if number else None


def _explain_statement(code: int | None, text: str, where: str) -> Db2CdcError | None:
    control = CONTROL_TABLE.search(text)
    match code:
        case -204 if control:
            return SourceError(
                f"no SQL Replication control tables in schema {control['schema']} of {where}",
                "Create them (asnclp or Debezium's asncdctables.sql), or name the right schema: cdc.control.schema.",
            )
        case -204:
            return SourceError(f"a table is gone from {where} ({_shortened(text)})", "Was it dropped meanwhile?")
        case -551 | -552:
            return SourceError(
                f"a privilege is missing at {where} ({_shortened(text)})",
                "GRANT SELECT on the named table to the connection's user.",
            )
        case -911 | -913:
            return LockedError(
                f"a statement at {where} waited too long for a lock, or in a deadlock ({_shortened(text)})",
                "Try again; if it stays, look for a long transaction on the control tables, or a definition (ALTER, "
                "CREATE, LOAD) that is not committed. ibm_db waits for LockTimeout seconds (60), JDBC for "
                "currentLockTimeout (the database's LOCKTIMEOUT).",
            )
        case -805:
            return SourceError(
                f"the driver's packages are not bound at {where} ({_shortened(text)})", "Bind @db2cli.lst once."
            )
        case _:
            return None


def _explanation(code: int | None) -> str:
    number = f' of `db2 "? SQL{abs(code):04}"`' if code else ""
    return f"See the explanation{number} and the instance's db2diag.log."


def _reason(text: str) -> str:
    """Return the driver's reason. ibm_db quotes it, and JCC has it after "Reason:"."""
    reason = re.search(r'\("([^"]*)"\)|Reason: ([^.]*)\.', text)
    return (reason[1] or reason[2]).lower() if reason else "login not accepted"


def _shortened(text: str) -> str:
    text = JCC_PREFIX.sub("", text.split("[IBM][CLI Driver]")[-1].strip())
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
