"""What the driver's errors mean to whoever runs the pipeline."""

from __future__ import annotations

import re

from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError, SourceError

SQLCODE = re.compile(r"SQLCODE=(-?\d+)")
MESSAGE_NUMBER = re.compile(r"\bSQL(\d{4,5})[NCW]\b")
CONTROL_TABLE = re.compile(r'"?(?P<schema>[^"\s.]+)"?\."?(?:IBMSNAP|IBMQREP)_')
MAX_TEXT = 400

CERTIFICATE_UNREADABLE = "CLI0157E"
LINK_FAILURE = "CLI0108E"
CONNECTION_LOST = (-1224, -30108)
"""The instance ended the connection; it was moved to another member, and what was under way is undone."""


class UnreachableError(SourceError):
    """Raised when there is no connection: nothing else can be asked, of any table."""


class LockedError(SourceError):
    """Raised when a statement waited too long for a lock, or in a deadlock: the next one may not."""


def explain(error: Exception, where: str) -> Db2CdcError:
    """Return the error to raise for a driver's error at `where` (host:port/database)."""
    text = " ".join(str(error).split())
    if CERTIFICATE_UNREADABLE in text:
        return ConfigurationError(
            f"the TLS certificate for {where} cannot be opened", "Check its path on the machine that runs this task."
        )
    code = sqlcode(text)
    if LINK_FAILURE in text or code in CONNECTION_LOST:
        return UnreachableError(f"the connection to {where} broke off ({_shortened(text)})", "Try again.")
    match code:
        case -30082:
            return ConfigurationError(
                f"{where} refuses the login: {_reason(text)}", "Check user and password of the connection."
            )
        case -30081 | -1336 if '"SSL"' in text:
            return UnreachableError(
                f"the TLS handshake with {where} failed ({_shortened(text)})",
                "Is the port Db2's TLS port (SSL_SVCENAME), and the certificate the server's or its authority's?",
            )
        case -30081 | -1336:
            return UnreachableError(
                f"{where} cannot be reached ({_shortened(text)})",
                "Check host and port, that the instance listens on TCP/IP (DB2COMM, SVCENAME), and firewalls.",
            )
        case -30061 | -1013:
            return ConfigurationError(
                f"the server has no database of that name: {where}", "Check the connection's database (schema) field."
            )
        case _:
            return _explain_statement(code, text, where)


def sqlcode(text: str) -> int | None:
    """Return the SQLCODE that the driver's text names."""
    if found := SQLCODE.search(text):
        return int(found[1])
    number = MESSAGE_NUMBER.search(text)
    return -int(number[1]) if number else None


def _explain_statement(code: int | None, text: str, where: str) -> Db2CdcError:
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
                "CREATE, LOAD) that nobody committed. ibm_db waits for LockTimeout seconds (60), JDBC for "
                "currentLockTimeout (the database's LOCKTIMEOUT).",
            )
        case -805:
            return SourceError(
                f"the driver's packages are not bound at {where} ({_shortened(text)})", "Bind @db2cli.lst once."
            )
        case _:
            return SourceError(f"Db2 at {where} answered: {_shortened(text)}", _explanation(code))


def _explanation(code: int | None) -> str:
    number = f' of `db2 "? SQL{abs(code):04}"`' if code else ""
    return f"See the explanation{number} and the instance's db2diag.log."


def _reason(text: str) -> str:
    quoted = re.findall(r'\("([^"]*)"\)', text)
    return quoted[0].lower() if quoted else "login not accepted"


def _shortened(text: str) -> str:
    text = text.split("[IBM][CLI Driver]")[-1].strip()
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
