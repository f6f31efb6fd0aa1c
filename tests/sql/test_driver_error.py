import pytest

from airflow_provider_db2cdc.errors import ConfigurationError, SourceError
from airflow_provider_db2cdc.sql.driver_error import LockedError, UnreachableError, explain, known_error, sqlcode

WHERE = "db2.example:50000/SALES"
DRIVER = "ibm_db_dbi::ProgrammingError: Statement Execute Failed: [IBM][CLI Driver]"

CASES = {
    "login": (
        f'{DRIVER} SQL30082N  Security processing failed with reason "24" ("USERNAME AND/OR PASSWORD INVALID").  '
        "SQLSTATE=08001 SQLCODE=-30082",
        ConfigurationError,
        "refuses the login: username and/or password invalid. Check user and password",
    ),
    "unreachable": (
        f'{DRIVER} SQL30081N  A communication error has been detected. Communication protocol being used: "TCP/IP".  '
        'Protocol specific error code(s): "111", "*", "*".  SQLSTATE=08001 SQLCODE=-30081',
        UnreachableError,
        "cannot be reached",
    ),
    "unknown host": (
        f'{DRIVER} SQL1336N  The remote host "nowhere" was not found.  SQLSTATE=08001 SQLCODE=-1336',
        UnreachableError,
        "cannot be reached",
    ),
    "tls": (
        f'{DRIVER} SQL30081N  A communication error has been detected. Communication protocol being used: "SSL".  '
        'Protocol specific error code(s): "414", "*", "*".  SQLSTATE=08001 SQLCODE=-30081',
        UnreachableError,
        "the TLS handshake",
    ),
    "certificate": (
        "ibm_db_dbi::DatabaseError: [IBM][CLI Driver] CLI0157E  Error opening a file. SQLSTATE=HY507 SQLCODE=-99999",
        ConfigurationError,
        "certificate .* cannot be opened",
    ),
    "database": (
        f'{DRIVER} SQL30061N  The database alias or database name "NOPE    " was not found at the remote node.  '
        "SQLSTATE=08004 SQLCODE=-30061",
        ConfigurationError,
        "no database of that name",
    ),
    "control tables": (
        f'{DRIVER}[DB2/LINUXX8664] SQL0204N  "ASNX.IBMSNAP_REGISTER" is an undefined name.  '
        "SQLSTATE=42704 SQLCODE=-204",
        SourceError,
        "no SQL Replication control tables in schema ASNX .*cdc.control.schema",
    ),
    "dropped table": (
        f'{DRIVER}[DB2/LINUXX8664] SQL0204N  "ASNCDC.CDC_A_B" is an undefined name.  SQLSTATE=42704 SQLCODE=-204',
        SourceError,
        "a table is gone .*CDC_A_B",
    ),
    "privilege": (
        f"{DRIVER}[DB2/LINUXX8664] SQL0551N  The statement failed because the authorization ID does not have the "
        'required authorization or privilege to perform the operation.  Authorization ID: "READER".  Operation: '
        '"SELECT". Object: "ASNCDC.CDC_A_B".  SQLSTATE=42501 SQLCODE=-551',
        SourceError,
        "a privilege is missing .*CDC_A_B.* GRANT SELECT",
    ),
    "lock": (
        f"{DRIVER}[DB2/LINUXX8664] SQL0911N  The current transaction has been rolled back because of a deadlock or "
        'timeout.  Reason code "68".  SQLSTATE=40001 SQLCODE=-911',
        LockedError,
        "waited too long for a lock.*LockTimeout",
    ),
    "broken link": (
        "ibm_db_dbi::ProgrammingError: [IBM][CLI Driver] CLI0108E  Communication link failure. "
        "SQLSTATE=40003 SQLCODE=-99999",
        UnreachableError,
        "broke off",
    ),
    "instance went down": (
        f"{DRIVER} SQL1224N  The database manager is not able to accept new requests.  SQLSTATE=55032 SQLCODE=-1224",
        UnreachableError,
        "broke off",
    ),
    "anything else": (
        f"{DRIVER}[DB2/LINUXX8664] SQL0290N  Table space access is not allowed.  SQLSTATE=55039 SQLCODE=-290",
        SourceError,
        r"answered: \[DB2/LINUXX8664\] SQL0290N",
    ),
}

COMMUNICATION = (
    "[jcc][t4][2030][11211][4.36.6] A communication error occurred during operations on the connection's underlying "
    "socket, socket input stream, \nor socket output stream.  Error location: Reply.fill() - socketInputStream.read "
    "(-1).  Message: {}. ERRORCODE=-4499, SQLSTATE=08001"
)
JCC_CASES = {
    "jcc login": (
        "[jcc][t4][2016][11252][4.36.6] Connection authorization failure occurred.  Reason: User ID invalid. "
        "ERRORCODE=-4214, SQLSTATE=28000",
        ConfigurationError,
        "refuses the login: user id invalid. Check user and password",
    ),
    "jcc refused": (
        "[jcc][t4][2043][11550][4.36.6] Exception java.net.ConnectException: Error opening socket to server /127.0.0.1 "
        "on port 1 with message: Connection refused. ERRORCODE=-4499, SQLSTATE=08001",
        UnreachableError,
        "cannot be reached .Exception java.net.ConnectException",
    ),
    "jcc unknown host": (
        '[jcc][t4][10380][11951][4.36.6] Required property "no.such.invalid" is unknown host. ERRORCODE=-4222, '
        "SQLSTATE=08001",
        UnreachableError,
        "cannot be reached",
    ),
    "jcc database": (
        "[jcc][t4][2057][11264][4.36.6] The application server rejected establishment of the connection.\nAn attempt "
        "was made to access a database, NOPE, which was either not found or does not support transactions. "
        "ERRORCODE=-4499, SQLSTATE=08004",
        ConfigurationError,
        "no database of that name",
    ),
    "jcc broken link": (
        COMMUNICATION.format("Connection reset"),
        UnreachableError,
        "broke off .Connection reset. ERRORCODE=-4499",
    ),
    "jcc trust": (
        COMMUNICATION.format(
            "PKIX path building failed: sun.security.provider.certpath.SunCertPathBuilderException: unable to find "
            "valid certification path to requested target"
        ),
        UnreachableError,
        "the TLS handshake with .*reads only the first certificate",
    ),
    "jcc expired": (
        COMMUNICATION.format(
            "PKIX path validation failed: java.security.cert.CertPathValidatorException: validity check failed"
        ),
        UnreachableError,
        "the TLS handshake with .*Renew the server's certificate",
    ),
    "jcc no tls there": (
        COMMUNICATION.format("Remote host terminated the handshake"),
        UnreachableError,
        "the TLS handshake with .*TLS port",
    ),
    "jcc certificate": (
        "[jcc][t4][2043][11550][4.36.6] Exception java.io.FileNotFoundException: Error opening socket to server "
        "/127.0.0.1 on port 41,810 with message: /none.pem (No such file or directory). ERRORCODE=-4499, "
        "SQLSTATE=08001",
        ConfigurationError,
        "certificate .* cannot be opened",
    ),
    "jcc host name": (
        "[jcc][t4][20162][14259][4.36.6] Connection failed: could not establish a SSL connection with the server. "
        "The connection has been configured to use hostname validation and the servers TLS certificate does not "
        "contain a hostname or IP address which matches the value configured by the client. ERRORCODE=-20576, "
        "SQLSTATE=08001",
        ConfigurationError,
        "for another host name.* SSLClientHostnameValidation",
    ),
    "host name": (
        "[IBM][CLI Driver] SQL20576N  The command or operation failed because a TLS connection could not be "
        'established with reason "1" and additional information "127.0.0.1".  SQLSTATE=08001 SQLCODE=-20576',
        ConfigurationError,
        "for another host name.* SSLClientHostnameValidation",
    ),
    "jcc privilege": (
        "DB2 SQL Error: SQLCODE=-551, SQLSTATE=42501, SQLERRMC=READER;SELECT;S.A, DRIVER=4.36.6",
        SourceError,
        "a privilege is missing",
    ),
    "jcc control tables": (
        "DB2 SQL Error: SQLCODE=-204, SQLSTATE=42704, SQLERRMC=ASNX.IBMSNAP_REGISTER, DRIVER=4.36.6",
        SourceError,
        "no SQL Replication control tables in schema ASNX",
    ),
}
CASES |= JCC_CASES


def test_an_unexplained_error_is_not_quoted() -> None:
    assert known_error("DB2 SQL Error: SQLCODE=-420, SQLSTATE=22018, SQLERRMC=DECFLOAT;hush", WHERE) is None


@pytest.mark.parametrize(("text", "kind", "words"), CASES.values(), ids=CASES)
def test_driver_error_is_explained_to_an_operator(text: str, kind: type[object], words: str) -> None:
    error = explain(Exception(text), WHERE)
    assert type(error) is kind
    assert WHERE in str(error)
    with pytest.raises(kind, match=words):
        raise error


def test_sqlcode_is_read_from_the_message_number_of_a_cut_text() -> None:
    assert sqlcode("[IBM][CLI Driver] SQL0204N  X is an undefined name.") == -204
    assert sqlcode("no number at all") is None


def test_long_driver_text_is_cut() -> None:
    assert len(str(explain(Exception("SQL0901N " + "x" * 5000), WHERE))) < 600
