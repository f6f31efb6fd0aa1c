"""SQL Replication's control tables, and what ASNCDC.ADDTABLE and REMOVETABLE do to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_provider_db2cdc.errors import ConfigurationError, RegistrationError
from airflow_provider_db2cdc.sandbox.capture import agent_control
from airflow_provider_db2cdc.sandbox.capture.statement import (
    Connection,
    execute,
    fetch,
    quoted,
    run_script,
    script_text,
)
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import (
    Column,
    Journal,
    UpdateAs,
    create_statements,
    drop_trigger_statements,
    find_journal,
    image_ddl,
    insert_column,
    insert_journal,
    trigger_statements,
)

CAPTURE_SCHEMA = "ASNCDC"
BEFORE_IMAGE_PREFIX = "X"
_SCRIPTS = ("asn.sql", "capture.sql", "syscat.sql")
_NAME_LIMIT = 128
# what the real agent does not capture either: LOB data (Apply re-reads the row) and BOOLEAN
_NOT_CAPTURED = ("BLOB", "CLOB", "XML", "BOOLEAN")


def install(connection: Connection) -> None:
    """Create control tables, the agent's own tables and functions, and SYSCAT's views; commit. Keeps what is there.

    Raises:
        ConfigurationError: the database was made by another version of the sandbox.
    """
    digest = hashlib.sha256("".join(script_text(name) for name in _SCRIPTS).encode()).hexdigest()
    if not _is_installed(connection):
        for name in _SCRIPTS:
            run_script(connection, name)
        agent_control.write(connection, "version", digest)
        connection.commit()
    elif agent_control.read(connection).get("version") != digest:
        raise ConfigurationError("this sandbox's data were made by another version", "Start it in a new folder.")


@dataclass(frozen=True)
class RegistrationOptions:
    """The options of a registration. None takes the sandbox's own option. An empty prefix means no before images."""

    update_as: UpdateAs | None = None
    before_img_prefix: str | None = None
    columns: Sequence[str] | None = None
    cd_owner: str = CAPTURE_SCHEMA
    cd_table: str | None = None
    state: str = "A"


def addtable(
    connection: Connection, schema: str, table: str, options: RegistrationOptions = RegistrationOptions()
) -> None:
    """Register a table for capture, as ASNCDC.ADDTABLE does, and commit.

    Waits for transactions that are changing the table. Changes of later ones are captured. LOB and BOOLEAN columns are
    excluded, as in Db2.

    Raises:
        RegistrationError: no such table or column, or it is registered already.
    """
    prefix, update_as = _images(connection, options.before_img_prefix, options.update_as)
    with changing_capture(connection):
        if find_journal(connection, schema, table):
            raise RegistrationError(f"{schema}.{table} is registered already", "Remove it first.")
        captured = _captured_columns(connection, schema, table, options.columns)
        change_table = (options.cd_owner, options.cd_table or change_table_name(schema, table))
        _create_change_table(connection, change_table, captured, prefix, index=_limited(f"IXCDC_{schema}_{table}"))
        names = tuple(column.name for column in captured)
        number = insert_journal(connection, (schema, table), change_table, names)
        journal = Journal(number, (schema, table), change_table, names, prefix, update_as)
        for statement in create_statements(journal, captured):
            execute(connection, statement)
        _insert_registration(connection, journal, options.state)
    compile_triggers(connection)


def removetable(connection: Connection, schema: str, table: str) -> None:
    """Undo `addtable`: the registration, the change table and all captured changes go; commit.

    Raises:
        RegistrationError: the table is not registered.
    """
    with changing_capture(connection):
        journal = registered(connection, schema, table)
        for control_table in ("IBMSNAP_PRUNCNTL", "IBMSNAP_REGISTER"):
            execute(
                connection,
                f"DELETE FROM ASNCDC.{control_table} WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?",
                *journal.source,
            )
        execute(connection, "DELETE FROM SANDBOX.JOURNAL WHERE ID = ?", journal.id)
        drop_triggers(connection, journal)
        execute(connection, f"DROP TABLE {journal.name}")
        execute(connection, f"DROP TABLE {quoted(*journal.change_table)}")


def addcolumn(connection: Connection, schema: str, table: str, column: str) -> None:
    """Capture one more column of a registered table (one that ALTER TABLE has added to it), and commit.

    The change table gets the column at its end; rows captured before hold NULL there. Unlike Db2, Derby carries out an
    ALTER TABLE that adds a DEFAULT as an update of all rows, which is captured as such.

    Raises:
        RegistrationError: the table is not registered, or has no such column.
    """
    with changing_capture(connection):
        journal = registered(connection, schema, table)
        (added,) = _captured_columns(connection, schema, table, [column])
        known = _captured_columns(connection, schema, table, journal.columns)
        for target in (quoted(*journal.change_table), journal.name):
            for name in [column, *([journal.prefix + column] if journal.prefix else [])]:
                execute(connection, f"ALTER TABLE {target} ADD COLUMN {quoted(name)} {added.nullable_type}")
        insert_column(connection, journal.id, len(journal.columns), column)
        drop_triggers(connection, journal)
        for statement in trigger_statements(journal, [*known, added]):
            execute(connection, statement)
    compile_triggers(connection)


def registered(connection: Connection, schema: str, table: str) -> Journal:
    """Return the journal of a registered table.

    Raises:
        RegistrationError: the table is not registered.
    """
    journal = find_journal(connection, schema, table)
    if journal is None:
        raise RegistrationError(f"{schema}.{table} is not registered for capture", "Add it with addtable.")
    return journal


def change_table_name(schema: str, table: str) -> str:
    """Return ADDTABLE's name for a change table; one that is too long ends in a digest of itself."""
    return _limited(f"CDC_{schema}_{table}")


@contextmanager
def changing_capture(connection: Connection) -> Iterator[None]:
    """Keep the agent out while capture's tables change; commit at the end, roll back on an error.

    What the connection has done before is committed first.
    """
    connection.commit()
    try:
        agent_control.lock(connection)
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def compile_triggers(connection: Connection) -> None:
    """Compile the triggers that need it, so that no writer has to, and commit."""
    execute(connection, "CALL SANDBOX.COMPILE_TRIGGERS()")
    connection.commit()


def drop_triggers(connection: Connection, journal: Journal) -> None:
    """Drop a journal's triggers, those that are left: a dropped source table has taken its own along."""
    triggers = fetch(
        connection,
        "SELECT TRIGGERNAME FROM SYS.SYSTRIGGERS T JOIN SYS.SYSSCHEMAS S ON S.SCHEMAID = T.SCHEMAID "
        "WHERE SCHEMANAME = 'SANDBOX'",
    )
    names = {f"SANDBOX.{row[0]}" for row in triggers}
    for statement in drop_trigger_statements(journal):
        if statement.removeprefix("DROP TRIGGER ") in names:
            execute(connection, statement)


def _is_installed(connection: Connection) -> bool:
    schemas = fetch(connection, "SELECT 1 FROM SYS.SYSSCHEMAS WHERE SCHEMANAME = 'SANDBOX'")
    return bool(schemas)


def _images(connection: Connection, prefix: str | None, update_as: UpdateAs | None) -> tuple[str, UpdateAs]:
    """Return prefix and form of updates, where not given those that the sandbox was started with."""
    options = agent_control.read(connection)
    if prefix is None:
        prefix = BEFORE_IMAGE_PREFIX if options.get("before_images") == "on" else ""
    return prefix, update_as or ("U" if options.get("update_as") == "U" else "DI")


def _captured_columns(connection: Connection, schema: str, table: str, chosen: Sequence[str] | None) -> list[Column]:
    rows = fetch(
        connection,
        "SELECT C.COLUMNNAME, CAST(C.COLUMNDATATYPE AS VARCHAR(254)) FROM SYS.SYSCOLUMNS C "
        "JOIN SYS.SYSTABLES T ON T.TABLEID = C.REFERENCEID JOIN SYS.SYSSCHEMAS S ON S.SCHEMAID = T.SCHEMAID "
        "WHERE S.SCHEMANAME = ? AND T.TABLENAME = ? AND T.TABLETYPE = 'T' ORDER BY C.COLUMNNUMBER",
        schema,
        table,
    )
    if not rows:
        raise RegistrationError(f"there is no table {schema}.{table}", "Names are taken as they stand, case included.")
    able = [Column(name, kind) for name, kind in rows if not kind.startswith(_NOT_CAPTURED)]
    if chosen is None:
        return able
    if missing := set(chosen) - {column.name for column in able}:
        raise RegistrationError(
            f"{schema}.{table} has no column to capture named {', '.join(sorted(missing))}",
            "LOBs and BOOLEANs are not.",
        )
    return [column for column in able if column.name in set(chosen)]


def _create_change_table(
    connection: Connection, name: tuple[str, str], columns: Sequence[Column], prefix: str, index: str
) -> None:
    owner = name[0]
    if not fetch(connection, "SELECT 1 FROM SYS.SYSSCHEMAS WHERE SCHEMANAME = ?", owner):
        execute(connection, f"CREATE SCHEMA {quoted(owner)}")
    execute(
        connection,
        f"CREATE TABLE {quoted(*name)} (IBMSNAP_COMMITSEQ VARCHAR(16) FOR BIT DATA NOT NULL, "
        "IBMSNAP_INTENTSEQ VARCHAR(16) FOR BIT DATA NOT NULL, IBMSNAP_OPERATION CHAR(1) NOT NULL, "
        f"{image_ddl(columns, prefix)})",
    )
    execute(
        connection,
        f"CREATE UNIQUE INDEX {quoted(owner, index)} ON {quoted(*name)} (IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ)",
    )


def _insert_registration(connection: Connection, journal: Journal, state: str) -> None:
    execute(
        connection,
        "INSERT INTO ASNCDC.IBMSNAP_REGISTER (SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL, GLOBAL_RECORD, "
        "SOURCE_STRUCTURE, SOURCE_CONDENSED, SOURCE_COMPLETE, CD_OWNER, CD_TABLE, PHYS_CHANGE_OWNER, "
        "PHYS_CHANGE_TABLE, DISABLE_REFRESH, ARCH_LEVEL, BEFORE_IMG_PREFIX, CONFLICT_LEVEL, "
        "CHG_UPD_TO_DEL_INS, CHGONLY, RECAPTURE, OPTION_FLAGS, STATE) "
        "VALUES (?, ?, 0, 'N', 1, 'Y', 'Y', ?, ?, ?, ?, 0, '0801', ?, '0', ?, 'N', 'Y', 'NNNN', ?)",
        *journal.source,
        *journal.change_table,
        *journal.change_table,
        journal.prefix or None,
        "Y" if journal.update_as == "DI" else "N",
        state,
    )
    rows = fetch(connection, "SELECT COALESCE(MAX(CAST(MAP_ID AS INTEGER)), 0) FROM ASNCDC.IBMSNAP_PRUNCNTL")
    execute(
        connection,
        "INSERT INTO ASNCDC.IBMSNAP_PRUNCNTL (TARGET_SERVER, TARGET_OWNER, TARGET_TABLE, SOURCE_OWNER, SOURCE_TABLE, "
        "SOURCE_VIEW_QUAL, APPLY_QUAL, SET_NAME, CNTL_SERVER, TARGET_STRUCTURE, CNTL_ALIAS, PHYS_CHANGE_OWNER, "
        "PHYS_CHANGE_TABLE, MAP_ID) VALUES ('KAFKA', ?, ?, ?, ?, 0, 'KAFKAQUAL', 'SET001', "
        "SUBSTR(CURRENT SERVER, 1, 18), 8, SUBSTR(CURRENT SERVER, 1, 8), ?, ?, ?)",
        *journal.source,
        *journal.source,
        *journal.change_table,
        str(int(rows[0][0]) + 1),
    )


def _limited(name: str) -> str:
    if len(name) <= _NAME_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _NAME_LIMIT - len(digest) - 1]}_{digest}"
