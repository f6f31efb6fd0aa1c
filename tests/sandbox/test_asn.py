"""Control tables and what registering a table does to them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.captured import Source, opened

from airflow_provider_db2cdc.errors import RegistrationError
from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.statement import execute, fetch
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import Column, Journal, create_statements
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.sandbox

REGISTER = (
    "SOURCE_OWNER SOURCE_TABLE SOURCE_VIEW_QUAL GLOBAL_RECORD SOURCE_STRUCTURE SOURCE_CONDENSED SOURCE_COMPLETE CD_OWNER "
    "CD_TABLE PHYS_CHANGE_OWNER PHYS_CHANGE_TABLE CD_OLD_SYNCHPOINT CD_NEW_SYNCHPOINT DISABLE_REFRESH CCD_OWNER CCD_TABLE "
    "CCD_OLD_SYNCHPOINT SYNCHPOINT SYNCHTIME CCD_CONDENSED CCD_COMPLETE ARCH_LEVEL DESCRIPTION BEFORE_IMG_PREFIX "
    "CONFLICT_LEVEL CHG_UPD_TO_DEL_INS CHGONLY RECAPTURE OPTION_FLAGS STOP_ON_ERROR STATE STATE_INFO"
)
UOW = "IBMSNAP_UOWID IBMSNAP_COMMITSEQ IBMSNAP_LOGMARKER IBMSNAP_AUTHTKN IBMSNAP_AUTHID IBMSNAP_REJ_CODE IBMSNAP_APPLY_QUAL"
RESTART = "MAX_COMMITSEQ MAX_COMMIT_TIME MIN_INFLIGHTSEQ CURR_COMMIT_TIME CAPTURE_FIRST_SEQ"


@pytest.fixture
def source(sandbox: Sandbox) -> Iterator[Source]:
    with opened(sandbox) as source:
        yield source


@pytest.mark.parametrize(
    ("table", "columns"),
    [("IBMSNAP_REGISTER", REGISTER), ("IBMSNAP_UOW", UOW), ("IBMSNAP_RESTART", RESTART)],
    ids=["register", "uow", "restart"],
)
def test_a_control_table_has_the_columns_of_the_real_one_in_their_order(
    source: Source, table: str, columns: str
) -> None:
    found = source.fetch(
        "SELECT COLNAME FROM SYSCAT.COLUMNS WHERE TABSCHEMA = 'ASNCDC' AND TABNAME = ? ORDER BY COLNO", table
    )
    assert [name for (name,) in found] == columns.split()


@pytest.mark.parametrize(
    "table",
    [
        "PRUNCNTL",
        "PRUNE_SET",
        "SIGNAL",
        "CAPPARMS",
        "CAPMON",
        "APPLEVEL",
        "CAPSCHEMAS",
        "CAPTRACE",
        "CAPENQ",
        "PRUNE_LOCK",
    ],
)
def test_the_other_control_tables_are_there(source: Source, table: str) -> None:
    assert source.fetch(f"SELECT COUNT(*) FROM ASNCDC.IBMSNAP_{table}")


def test_installing_again_keeps_the_global_row_and_the_restart_point(source: Source) -> None:
    before = source.fetch("SELECT MAX_COMMITSEQ, CAPTURE_FIRST_SEQ FROM ASNCDC.IBMSNAP_RESTART")
    source.agent.install()
    assert source.fetch("SELECT MAX_COMMITSEQ, CAPTURE_FIRST_SEQ FROM ASNCDC.IBMSNAP_RESTART") == before
    assert source.fetch("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'") == [(1,)]


def test_a_registration_has_the_values_that_addtable_gives(source: Source) -> None:
    table = source.table()
    schema = table.name[0]
    assert source.registration(
        table.name,
        "SOURCE_VIEW_QUAL, GLOBAL_RECORD, SOURCE_STRUCTURE, CD_OWNER, CD_TABLE, PHYS_CHANGE_OWNER, PHYS_CHANGE_TABLE, "
        "CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT, SYNCHPOINT, SYNCHTIME, ARCH_LEVEL, BEFORE_IMG_PREFIX, CONFLICT_LEVEL, "
        "CHG_UPD_TO_DEL_INS, CHGONLY, RECAPTURE, OPTION_FLAGS, STOP_ON_ERROR, STATE, STATE_INFO",
    ) == (
        *(0, "N", 1, "ASNCDC", f"CDC_{schema}_T", "ASNCDC", f"CDC_{schema}_T"),
        *(None, None, None, None, "0801", None, "0", "Y", "N", "Y", "NNNN", "Y", "A", None),
    )


def test_a_registration_has_its_own_pruncntl_row(source: Source) -> None:
    first, second = source.table(), source.table()
    rows = source.fetch(
        "SELECT SOURCE_OWNER, SYNCHPOINT, RTRIM(APPLY_QUAL), PHYS_CHANGE_TABLE, CAST(MAP_ID AS INTEGER) "
        "FROM ASNCDC.IBMSNAP_PRUNCNTL WHERE SOURCE_OWNER IN (?, ?) ORDER BY 5",
        first.name[0],
        second.name[0],
    )
    assert [row[:4] for row in rows] == [
        (table.name[0], None, "KAFKAQUAL", f"CDC_{table.name[0]}_T") for table in (first, second)
    ]
    assert rows[0][4] < rows[1][4]


def test_a_change_table_has_the_source_columns_and_a_unique_index(source: Source) -> None:
    table = source.table("ID INTEGER NOT NULL PRIMARY KEY, A DECIMAL(7,2), B CHAR(3) NOT NULL DEFAULT 'x'")
    columns = source.fetch(
        'SELECT COLNAME, TYPENAME, LENGTH, SCALE, NULLS, "DEFAULT" FROM SYSCAT.COLUMNS '
        "WHERE TABSCHEMA = 'ASNCDC' AND TABNAME = ? ORDER BY COLNO",
        f"CDC_{table.name[0]}_T",
    )
    assert columns == [
        ("IBMSNAP_COMMITSEQ", "VARCHAR", 16, 0, "N", None),
        ("IBMSNAP_INTENTSEQ", "VARCHAR", 16, 0, "N", None),
        ("IBMSNAP_OPERATION", "CHARACTER", 1, 0, "N", None),
        ("ID", "INTEGER", 4, 0, "N", None),
        ("A", "DECIMAL", 7, 2, "Y", None),
        ("B", "CHARACTER", 3, 0, "N", None),
    ]
    assert source.fetch(
        "SELECT INDNAME, COLNAMES, UNIQUERULE FROM SYSCAT.INDEXES WHERE TABSCHEMA = 'ASNCDC' AND TABNAME = ?",
        f"CDC_{table.name[0]}_T",
    ) == [(f"IXCDC_{table.name[0]}_T", "+IBMSNAP_COMMITSEQ+IBMSNAP_INTENTSEQ", "U")]


def test_lobs_and_booleans_are_left_out_as_the_real_agent_leaves_them(source: Source) -> None:
    table = source.table("ID INTEGER NOT NULL PRIMARY KEY, C CLOB(1K), B BLOB(1K), F BOOLEAN, V VARCHAR(5)")
    source.run(f"INSERT INTO {table} (ID, C, V) VALUES (1, CAST('long' AS CLOB(1K)), 'v')")
    source.run(f"UPDATE {table} SET C = CAST('longer' AS CLOB(1K))")
    source.commit()
    assert table.captured() == [("I", 1, "v"), ("D", 1, "v"), ("I", 1, "v")]


def test_a_chosen_subset_of_columns_is_captured_in_the_order_of_the_table(source: Source) -> None:
    table = source.table("ID INTEGER NOT NULL PRIMARY KEY, A INTEGER, B INTEGER", columns=["B", "ID"])
    source.run(f"INSERT INTO {table} VALUES (1, 2, 3)")
    source.commit()
    assert table.captured() == [("I", 1, 3)]


@pytest.mark.parametrize(
    ("schema", "table"),
    [("A b", "C d"), ("dot.ted", 'qu"ote'), ("lower", "case"), ("ÅÄÖ", "日本"), ("SELECT", "FROM"), ("x--y", "it's;")],
    ids=["spaces", "dots and quotes", "lower case", "not ascii", "reserved", "comment and literal"],
)
def test_any_name_may_be_captured(source: Source, schema: str, table: str) -> None:
    column = f"{table} ?"
    for statement in asn_names(schema, table, column):
        source.run(statement)
    captured = source.register((schema, table))
    source.run(f"INSERT INTO {captured} VALUES (1, 'x')")
    source.run(f"UPDATE {captured} SET ID = 2")
    source.run(f"DELETE FROM {captured}")
    source.commit()
    assert captured.captured() == [("I", 1, "x"), ("D", 1, "x"), ("I", 2, "x"), ("D", 2, "x")]


def asn_names(schema: str, table: str, column: str) -> list[str]:
    schema, table, column = ('"' + name.replace('"', '""') + '"' for name in (schema, table, column))
    return [
        f"CREATE SCHEMA {schema}",
        f"CREATE TABLE {schema}.{table} (ID INTEGER NOT NULL PRIMARY KEY, {column} CHAR(1))",
    ]


def test_names_too_long_for_a_change_table_are_shortened_and_distinct() -> None:
    names = {control_tables.change_table_name("S" * 100, "T" * 100 + end) for end in ("A", "B")}
    assert len(names) == 2
    assert all(len(name) == 128 and name.startswith("CDC_SSS") for name in names)


def test_a_table_of_the_longest_name_can_be_captured(source: Source) -> None:
    name = ("S" * 128, "T" * 128)
    source.run(f"CREATE SCHEMA {name[0]}")
    source.run(f"CREATE TABLE {name[0]}.{name[1]} (ID INTEGER)")
    table = source.register(name)
    source.run(f"INSERT INTO {table} VALUES 1")
    source.commit()
    assert table.captured() == [("I", 1)]


def test_a_change_table_may_have_a_name_and_a_schema_of_its_own(source: Source) -> None:
    table = source.table(cd_owner="Other cd", cd_table="Mine")
    source.run(f"INSERT INTO {table} VALUES (1, 'x')")
    source.commit()
    assert table.change_table == '"Other cd"."Mine"'
    assert table.captured() == [("I", 1, "x")]


def test_a_second_registration_of_a_table_is_refused(source: Source) -> None:
    table = source.table()
    with pytest.raises(RegistrationError, match="registered already"):
        control_tables.addtable(source.connection, *table.name)


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [("NONE", None, "no table"), ("T", ["NOPE"], "no column .* NOPE"), ("T", ["C"], "no column .* C")],
    ids=["table", "column", "lob column"],
)
def test_a_missing_table_cannot_be_registered_and_leaves_no_trace(
    source: Source, table: str, columns: list[str] | None, message: str
) -> None:
    schema = source.table("ID INTEGER, C CLOB").name[0]
    control_tables.removetable(source.connection, schema, "T")
    with pytest.raises(RegistrationError, match=message):
        control_tables.addtable(source.connection, schema, table, control_tables.RegistrationOptions(columns=columns))
    assert source.fetch("SELECT 1 FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_OWNER = ?", schema) == []


def test_removing_a_table_leaves_nothing_of_its_capture(source: Source) -> None:
    table = source.table()
    schema, name = table.name
    source.run(f"INSERT INTO {table} VALUES (1, 'x')")
    source.commit()
    source.agent.round()
    control_tables.removetable(source.connection, schema, name)
    source.run(f"INSERT INTO {table} VALUES (2, 'y')")
    source.commit()
    for control_table in ("REGISTER", "PRUNCNTL"):
        assert source.fetch(f"SELECT 1 FROM ASNCDC.IBMSNAP_{control_table} WHERE SOURCE_OWNER = ?", schema) == []
    assert source.fetch("SELECT 1 FROM SYSCAT.TABLES WHERE TABNAME = ?", f"CDC_{schema}_T") == []
    with pytest.raises(RegistrationError, match="not registered"):
        control_tables.removetable(source.connection, schema, name)


def test_a_table_can_be_removed_after_its_source_was_dropped(source: Source) -> None:
    table = source.table()
    source.run(f"DROP TABLE {table}")
    source.commit()
    control_tables.removetable(source.connection, *table.name)
    assert source.fetch("SELECT 1 FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_OWNER = ?", table.name[0]) == []


def test_an_added_column_is_captured_from_then_on(source: Source) -> None:
    table = source.table(before_img_prefix="X")
    source.run(f"INSERT INTO {table} VALUES (1, 'x')")
    source.commit()
    source.run(f"ALTER TABLE {table} ADD COLUMN N INTEGER")
    source.commit()
    source.run(f"UPDATE {table} SET V = 'seen without it'")
    source.commit()
    control_tables.addcolumn(source.connection, *table.name, "N")
    source.run(f"UPDATE {table} SET N = 7")
    source.run(f"UPDATE {table} SET N = 8")
    source.commit()
    captured = [(operation, values[4:]) for operation, *values in table.captured()]
    assert captured == [
        *(("I", [None, None]), ("D", [None, None]), ("I", [None, None])),
        *(("D", [None, None]), ("I", [7, None]), ("D", [7, 7]), ("I", [8, None])),
    ]


def test_a_table_that_is_being_changed_is_registered_after_that_change(source: Source, sandbox: Sandbox) -> None:
    table = source.table()
    control_tables.removetable(source.connection, *table.name)
    other = sandbox.connect()
    execute(other, f"INSERT INTO {table} VALUES (1, 'before')")
    registering = threading.Thread(target=control_tables.addtable, args=(source.connection, *table.name))
    registering.start()
    registering.join(0.3)
    assert registering.is_alive()
    other.commit()
    registering.join(10)
    execute(other, f"INSERT INTO {table} VALUES (2, 'after')")
    other.commit()
    assert table.captured() == [("I", 2, "after")]
    control_tables.removetable(source.connection, *table.name)
    other.close()


def test_capture_triggers_are_compiled_before_the_first_writer_needs_them(source: Source) -> None:
    source.table()
    assert fetch(source.connection, "SELECT COUNT(*) FROM SYS.SYSSTATEMENTS WHERE TYPE = 'T' AND VALID = FALSE") == [
        (0,)
    ]


def test_an_update_inserts_both_images_in_one_trigger_action() -> None:
    journal = Journal(7, ("S", "T"), ("ASNCDC", "CDC_S_T"), ("ID",), prefix="X")
    statements = create_statements(journal, [Column("ID", "INTEGER NOT NULL")])
    assert statements[0].endswith('IBMSNAP_OPERATION CHAR(1) NOT NULL, "ID" INTEGER NOT NULL, "XID" INTEGER)')
    assert statements[-1] == (
        'CREATE TRIGGER SANDBOX.J7U AFTER UPDATE ON "S"."T" REFERENCING OLD AS O NEW AS N FOR EACH ROW '
        'INSERT INTO SANDBOX.J7 VALUES (SANDBOX.TXN(), SANDBOX.TICK(), \'D\', O."ID", O."ID"), '
        "(SANDBOX.TXN(), SANDBOX.TICK(), 'I', N.\"ID\", CAST(NULL AS INTEGER))"
    )
