"""The journal of a captured table: triggers put each changed row there, the agent moves it on once it is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute, fetch, quoted

UpdateAs = Literal["DI", "U"]
"""What an update becomes: a D row (old image) and an I row (new one), or one U row."""

_NEVER = 2**63 - 1


@dataclass(frozen=True)
class Column:
    """A column of the source table: its name and its type as DDL says it, NOT NULL included."""

    name: str
    type: str

    @property
    def nullable_type(self) -> str:
        """The type without NOT NULL."""
        return self.type.removesuffix(" NOT NULL")


@dataclass(frozen=True)
class Journal:
    """A captured table with its journal; `since` is the tick up to which changes are older than its capture."""

    id: int
    source: tuple[str, str]
    change_table: tuple[str, str]
    columns: tuple[str, ...]
    prefix: str = ""
    update_as: UpdateAs = "DI"
    since: int = 0
    active: bool = True

    @property
    def name(self) -> str:
        """The journal table. Its index on transaction and sequence has the same name with an X appended."""
        return f"SANDBOX.J{self.id}"

    @property
    def first_tick(self) -> int:
        """Only rows above this tick are captured."""
        return self.since if self.active else _NEVER

    def images(self) -> Iterator[str]:
        """Yield the data columns of change table and journal. A before-image column is next to its column."""
        for column in self.columns:
            yield column
            if self.prefix:
                yield self.prefix + column


def image_ddl(columns: Sequence[Column], prefix: str) -> str:
    """Return the column definitions of the row images; a before image may always be null."""
    definitions = []
    for column in columns:
        definitions.append(f"{quoted(column.name)} {column.type}")
        if prefix:
            definitions.append(f"{quoted(prefix + column.name)} {column.nullable_type}")
    return ", ".join(definitions)


def create_statements(journal: Journal, columns: Sequence[Column]) -> list[str]:
    """Return the DDL of a journal and its triggers."""
    return [
        f"CREATE TABLE {journal.name} (IBMSNAP_TXN BIGINT NOT NULL, IBMSNAP_SEQ BIGINT NOT NULL, "
        f"IBMSNAP_OPERATION CHAR(1) NOT NULL, {image_ddl(columns, journal.prefix)})",
        f"CREATE INDEX {journal.name}X ON {journal.name} (IBMSNAP_TXN, IBMSNAP_SEQ)",
        *trigger_statements(journal, columns),
    ]


def trigger_statements(journal: Journal, columns: Sequence[Column]) -> list[str]:
    """Return the three triggers: AFTER, FOR EACH ROW, so that a statement's rows come in its own row order."""
    insert = _row(journal, columns, "I", after="N", before=None)
    delete = _row(journal, columns, "D", after="O", before="O")
    update = _row(journal, columns, "U", after="N", before="O") if journal.update_as == "U" else f"{delete}, {insert}"
    events = {"INSERT": insert, "DELETE": delete, "UPDATE": update}
    return [
        f"CREATE TRIGGER {journal.name}{event[0]} AFTER {event} ON {quoted(*journal.source)} "
        f"REFERENCING {_ALIASES[event]} FOR EACH ROW INSERT INTO {journal.name} VALUES {values}"
        for event, values in events.items()
    ]


def drop_trigger_statements(journal: Journal) -> list[str]:
    """Return what undoes `trigger_statements`."""
    return [f"DROP TRIGGER {journal.name}{event[0]}" for event in _ALIASES]


def load_journals(connection: Connection) -> list[Journal]:
    """Return all captured tables, with their registrations' present state."""
    return _journals(connection, "WHERE 1 = 1")


def find_journal(connection: Connection, schema: str, table: str) -> Journal | None:
    """Return the journal of one source table, or None if it is not captured."""
    journals = _journals(connection, "WHERE J.SOURCE_OWNER = ? AND J.SOURCE_TABLE = ?", schema, table)
    return journals[0] if journals else None


def insert_journal(
    connection: Connection, source: tuple[str, str], change_table: tuple[str, str], columns: Sequence[str]
) -> int:
    """Enter a table into the directory of journals, captured from this moment on, and return its number."""
    execute(
        connection,
        "INSERT INTO SANDBOX.JOURNAL (SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, SINCE) "
        "VALUES (?, ?, ?, ?, SANDBOX.TICK())",
        *source,
        *change_table,
    )
    rows = fetch(connection, "SELECT ID FROM SANDBOX.JOURNAL WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?", *source)
    journal_id = int(rows[0][0])
    for number, column in enumerate(columns):
        insert_column(connection, journal_id, number, column)
    return journal_id


def insert_column(connection: Connection, journal_id: int, number: int, column: str) -> None:
    """Enter a column, numbered from 0, into the directory of journals."""
    execute(connection, "INSERT INTO SANDBOX.JOURNAL_COLUMN VALUES (?, ?, ?)", journal_id, number, column)


_ALIASES = {"INSERT": "NEW AS N", "DELETE": "OLD AS O", "UPDATE": "OLD AS O NEW AS N"}

_SELECT = """SELECT J.ID, J.SOURCE_OWNER, J.SOURCE_TABLE, J.CD_OWNER, J.CD_TABLE, J.SINCE,
    R.BEFORE_IMG_PREFIX, R.CHG_UPD_TO_DEL_INS, R.STATE
FROM SANDBOX.JOURNAL J LEFT JOIN ASNCDC.IBMSNAP_REGISTER R
    ON R.SOURCE_OWNER = J.SOURCE_OWNER AND R.SOURCE_TABLE = J.SOURCE_TABLE AND R.SOURCE_VIEW_QUAL = 0"""


def _journals(connection: Connection, where: str, *parameters: object) -> list[Journal]:
    columns: dict[int, list[str]] = {}
    for journal_id, name in fetch(
        connection, "SELECT JOURNAL, NAME FROM SANDBOX.JOURNAL_COLUMN ORDER BY JOURNAL, NUMBER"
    ):
        columns.setdefault(journal_id, []).append(name)
    rows = fetch(connection, f"{_SELECT} {where}", *parameters)
    return [
        Journal(
            id=journal_id,
            source=(owner, table),
            change_table=(cd_owner, cd_table),
            columns=tuple(columns[journal_id]),
            prefix=prefix or "",
            update_as="DI" if pairs == "Y" else "U",
            since=since,
            active=state == "A",
        )
        for journal_id, owner, table, cd_owner, cd_table, since, prefix, pairs, state in rows
    ]


def _row(journal: Journal, columns: Sequence[Column], operation: str, after: str, before: str | None) -> str:
    # Derby gives a transaction a new number at its first write, so the id is asked for here, after it
    values = ["SANDBOX.TXN()", "SANDBOX.TICK()", f"'{operation}'"]
    for column in columns:
        values.append(f"{after}.{quoted(column.name)}")
        if journal.prefix:
            null = f"CAST(NULL AS {column.nullable_type})"
            values.append(f"{before}.{quoted(column.name)}" if before else null)
    return f"({', '.join(values)})"
