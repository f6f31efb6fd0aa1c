"""Control tables of SQL Replication filled by hand, so that a test says exactly what capture has done.

They are in the sandbox's database, without an agent. SYSCAT's tables (the sandbox's own schema for them) hold what the
test says. Every instance has an ASN schema and a source schema of its own.
"""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture.statement import Connection

LSN = "VARCHAR(16) FOR BIT DATA"
CATALOG = {
    "TABLES": (
        "TABSCHEMA VARCHAR(128), TABNAME VARCHAR(128), CREATE_TIME TIMESTAMP, DATACAPTURE CHAR(1), "
        "EXTENDED_ROW_SIZE CHAR(1)"
    ),
    "COLUMNS": (
        "TABSCHEMA VARCHAR(128), TABNAME VARCHAR(128), COLNAME VARCHAR(128), COLNO SMALLINT, TYPENAME VARCHAR(128), "
        "LENGTH INTEGER, SCALE SMALLINT, NULLS CHAR(1), CODEPAGE SMALLINT"
    ),
    "INDEXES": (
        "INDSCHEMA VARCHAR(128), INDNAME VARCHAR(128), TABSCHEMA VARCHAR(128), TABNAME VARCHAR(128), "
        "UNIQUERULE CHAR(1), NULLKEYS CHAR(1)"
    ),
    "INDEXCOLUSE": (
        "INDSCHEMA VARCHAR(128), INDNAME VARCHAR(128), COLNAME VARCHAR(128), COLSEQ SMALLINT, COLORDER CHAR(1)"
    ),
}
CONTROL = {
    "IBMSNAP_REGISTER": (
        "SOURCE_OWNER VARCHAR(128) NOT NULL, SOURCE_TABLE VARCHAR(128) NOT NULL, SOURCE_VIEW_QUAL SMALLINT NOT NULL, "
        "GLOBAL_RECORD CHAR(1) NOT NULL, CD_OWNER VARCHAR(128), CD_TABLE VARCHAR(128), "
        f"CD_OLD_SYNCHPOINT {LSN}, CD_NEW_SYNCHPOINT {LSN}, SYNCHPOINT {LSN}, SYNCHTIME TIMESTAMP, "
        "BEFORE_IMG_PREFIX VARCHAR(4), CHG_UPD_TO_DEL_INS CHAR(1), OPTION_FLAGS CHAR(4), STATE CHAR(1), "
        "STATE_INFO CHAR(8)"
    ),
    "IBMSNAP_PRUNCNTL": (
        "SOURCE_OWNER VARCHAR(128) NOT NULL, SOURCE_TABLE VARCHAR(128) NOT NULL, SOURCE_VIEW_QUAL SMALLINT NOT NULL"
    ),
    "IBMSNAP_RESTART": f"CAPTURE_FIRST_SEQ {LSN} NOT NULL",
    "IBMSNAP_UOW": f"IBMSNAP_COMMITSEQ {LSN} NOT NULL, IBMSNAP_LOGMARKER TIMESTAMP NOT NULL",
}
TIMEZONE = (
    "CREATE FUNCTION SANDBOX.TIMEZONE () RETURNS DECIMAL(6, 0) "
    "LANGUAGE JAVA PARAMETER STYLE JAVA NO SQL EXTERNAL NAME 'db2cdc.Capture.timezone'"
)
"""The function behind CURRENT TIMEZONE, which a sandbox without capture lacks."""
COMMITS = f"IBMSNAP_COMMITSEQ {LSN} NOT NULL, IBMSNAP_INTENTSEQ {LSN} NOT NULL, IBMSNAP_OPERATION CHAR(1) NOT NULL"
CREATED, REGISTERED = "2025-12-31 23:59:59.999999", "2026-01-02 03:04:05.678901"
"""When source tables were created, and their change tables."""
COMMITTED, COMMITTED_MS = "2026-01-02 03:04:05.678901", 1_767_323_045_678

COLUMNS = (("ID", "INTEGER", 4, "N"), ("V", "VARCHAR", 20, "Y"))

Shape = tuple[str, str, int, str]

_numbers = itertools.count(1)


def lsn(number: int) -> Lsn:
    """The test's log positions: 16 bytes that hold a small number."""
    return Lsn(number.to_bytes(16, "big"))


class ControlTables:
    """One ASN schema; `connection` is a DB-API connection in autocommit."""

    def __init__(self, connection: Connection) -> None:
        number = next(_numbers)
        self.asn, self.schema = f"ASN{number}", f"SRC{number}"
        self._cursor = connection.cursor()
        self._intent = itertools.count(1)
        self.registered: list[TableId] = []
        if number == 1:
            self.run(TIMEZONE)
        for schema, tables in (("SANDBOX_SYSCAT", CATALOG if number == 1 else {}), (self.asn, CONTROL)):
            for name, columns in tables.items():
                self.run(f"CREATE TABLE {schema}.{name} ({columns})")
        self.insert("IBMSNAP_REGISTER", SOURCE_OWNER="", SOURCE_TABLE="", SOURCE_VIEW_QUAL=0, GLOBAL_RECORD="Y")

    def run(self, text: str, *params: Any) -> None:
        """Execute one statement."""
        self._cursor.execute(text, params or None)

    def insert(self, control_table: str, **values: Any) -> None:
        """Insert a row into one of the control tables."""
        self._insert(f"{self.asn}.{control_table}", values)

    def synch(self, number: int, age_s: int = 0) -> None:
        """Let the agent have captured everything up to this position, so many seconds ago."""
        self._cursor.execute("SELECT CURRENT TIMESTAMP FROM SYSIBM.SYSDUMMY1")
        synchtime = self._cursor.fetchall()[0][0] - timedelta(seconds=age_s)
        self.run(
            f"UPDATE {self.asn}.IBMSNAP_REGISTER SET SYNCHPOINT = X'{lsn(number).hex}', "
            f"SYNCHTIME = '{synchtime:%Y-%m-%d %H:%M:%S.%f}' WHERE GLOBAL_RECORD = 'Y'"
        )

    def table(self, name: str) -> TableId:
        """Name one of the source's tables."""
        return TableId(self.schema, name)

    def add(
        self,
        name: str,
        columns: tuple[Shape, ...] = COLUMNS,
        key: tuple[str, ...] = ("ID",),
        carried: tuple[str, ...] | None = None,
        **registered: Any,
    ) -> TableId:
        """Create a source table, its change table with the `carried` columns, and register it as ADDTABLE does."""
        shapes = {shape[0]: f'"{shape[0]}" {_sql(shape)}' for shape in columns}
        self.run(f'CREATE TABLE {self.schema}."{name}" ({", ".join(shapes.values())})')
        names = carried if carried is not None else tuple(shapes)
        self.run(f'CREATE TABLE {self.asn}."CD_{name}" ({", ".join([COMMITS, *(shapes[each] for each in names)])})')
        self._catalog(self.schema, name, columns, CREATED)
        extra = tuple((each, "VARCHAR", 16, "N") for each in _ibmsnap())
        self._catalog(self.asn, f"CD_{name}", (*extra, *(shape for shape in columns if shape[0] in names)), REGISTERED)
        self.index(self.schema, name, "P", key)
        self.index(self.asn, f"CD_{name}", "U", _ibmsnap()[:2])
        self.insert("IBMSNAP_PRUNCNTL", SOURCE_OWNER=self.schema, SOURCE_TABLE=name, SOURCE_VIEW_QUAL=0)
        self.register(name, **registered)
        return self.table(name)

    def register(self, name: str, **values: Any) -> None:
        """Insert the registration that ADDTABLE writes, with other values where given."""
        self.registered.append(self.table(name))
        usual = {"SOURCE_VIEW_QUAL": 0, "CHG_UPD_TO_DEL_INS": "Y", "OPTION_FLAGS": "NNNN", "STATE": "A"}
        owners = {"SOURCE_OWNER": self.schema, "SOURCE_TABLE": name, "CD_OWNER": self.asn, "CD_TABLE": f"CD_{name}"}
        self.insert("IBMSNAP_REGISTER", GLOBAL_RECORD="N", **{**owners, **usual, **values})

    def index(
        self,
        schema: str,
        table: str,
        rule: str,
        columns: tuple[str, ...],
        include: tuple[str, ...] = (),
        null_keys: str = "Y",
    ) -> None:
        """Describe an index in the catalog."""
        index = f"IX{next(_numbers)}"
        if columns:
            names = {"INDSCHEMA": schema, "INDNAME": index}
            rules = {"UNIQUERULE": rule, "NULLKEYS": null_keys}
            self._insert("SANDBOX_SYSCAT.INDEXES", {**names, "TABSCHEMA": schema, "TABNAME": table, **rules})
            orders = [*((name, "A") for name in columns), *((name, "I") for name in include)]
            for place, (column, order) in enumerate(orders):
                row = {**names, "COLNAME": column, "COLSEQ": place + 1, "COLORDER": order}
                self._insert("SANDBOX_SYSCAT.INDEXCOLUSE", row)

    def capture(self, name: str, commit: int, rows: int = 1) -> None:
        """Write the change rows of one captured transaction, and its position into the registration."""
        for _ in range(rows):
            literals = f"X'{lsn(commit).hex}', X'{lsn(next(self._intent)).hex}'"
            self.run(
                f'INSERT INTO {self.asn}."CD_{name}" (IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ, IBMSNAP_OPERATION, ID) '
                f"VALUES ({literals}, 'I', 1)"
            )
        self.set(name, CD_NEW_SYNCHPOINT=lsn(commit).raw)

    def unit(self, commit: int, at: str = COMMITTED) -> None:
        """Write the row of a captured transaction's unit of work, with its time at the source."""
        self.run(
            f"INSERT INTO {self.asn}.IBMSNAP_UOW (IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER) "
            f"VALUES (X'{lsn(commit).hex}', TIMESTAMP('{at}'))"
        )

    def forget(self, name: str, commit: int) -> None:
        """Delete what is left of a captured transaction of a table, as a restore does."""
        for table in (f'"CD_{name}"', "IBMSNAP_UOW"):
            self.run(f"DELETE FROM {self.asn}.{table} WHERE IBMSNAP_COMMITSEQ = X'{lsn(commit).hex}'")

    def set(self, name: str, **values: Any) -> None:
        """Change columns of a registration."""
        for column, value in values.items():
            literal = f"X'{value.hex()}'" if isinstance(value, bytes) else f"'{value}'"
            self.run(f"UPDATE {self.asn}.IBMSNAP_REGISTER SET {column} = {literal} WHERE SOURCE_TABLE = '{name}'")

    def _catalog(self, schema: str, name: str, columns: tuple[Shape, ...], time: str) -> None:
        names = {"TABSCHEMA": schema, "TABNAME": name}
        created = {"CREATE_TIME": time, "DATACAPTURE": "Y", "EXTENDED_ROW_SIZE": "N"}
        self._insert("SANDBOX_SYSCAT.TABLES", {**names, **created})
        for place, (column, kind, length, nulls) in enumerate(columns):
            row = {"COLNAME": column, "COLNO": place, "TYPENAME": kind, "LENGTH": length, "SCALE": 0, "NULLS": nulls}
            self._insert("SANDBOX_SYSCAT.COLUMNS", {**names, **row, "CODEPAGE": 1208})

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        marks = ", ".join("?" * len(values))
        self.run(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", *values.values())


def _sql(shape: Shape) -> str:
    _, kind, length, nulls = shape
    sized = {"MONEY": "INTEGER"}.get(kind, f"{kind}({length})" if kind in ("CHARACTER", "VARCHAR") else kind)
    return sized if nulls == "Y" else f"{sized} NOT NULL"


def _ibmsnap() -> tuple[str, str, str]:
    return ("IBMSNAP_COMMITSEQ", "IBMSNAP_INTENTSEQ", "IBMSNAP_OPERATION")
