from dataclasses import replace
from typing import Any

import pytest
from support.control_tables import ControlTables, lsn
from support.memory_offsets import MemoryOffsets
from support.sandbox_source import CountingSource

from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.selection.tables import Selection
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import CaptureStoppedError, ConfigurationError, RegistrationError
from airflow_provider_db2cdc.source.catalog import (
    read_capture,
    read_capture_position,
    read_columns,
    read_conditions,
    read_registrations,
    read_schemas,
)
from airflow_provider_db2cdc.source.planning.plan import TickRun, plan_tick
from airflow_provider_db2cdc.source.preflight.table_requirements import failed_requirements, require

pytestmark = pytest.mark.sandbox

ALL = Selection()


def images(*names: str) -> list[Column]:
    return [Column(name, "INTEGER", 4) for name in names]


def schema_of(
    source: CountingSource, control: ControlTables, name: str = "T", selection: Selection = ALL
) -> TableSchema:
    instances = read_registrations(source, control.asn)
    return read_schemas(source, instances.values(), selection)[control.table(name)]


def test_capture_position_is_the_greatest_synchpoint_with_its_age(
    source: CountingSource, control: ControlTables
) -> None:
    control.add("T")
    control.synch(100, age_s=40)
    fence = read_capture_position(source, control.asn)
    assert fence.lsn == lsn(100)
    assert 39 < fence.age_s < 60
    control.set("T", CD_NEW_SYNCHPOINT=lsn(120).raw)
    assert read_capture_position(source, control.asn).lsn == lsn(120)


def test_stopped_registration_does_not_move_the_capture_position(
    source: CountingSource, control: ControlTables
) -> None:
    control.add("T", STATE="S")
    control.set("T", CD_NEW_SYNCHPOINT=lsn(120).raw)
    assert read_capture_position(source, control.asn).lsn == lsn(100)


def test_agent_that_never_ran_is_reported(source: CountingSource, control: ControlTables) -> None:
    control.run(f"UPDATE {control.asn}.IBMSNAP_REGISTER SET SYNCHPOINT = NULL, SYNCHTIME = NULL")
    with pytest.raises(CaptureStoppedError, match=r"never ran.*asncap capture_server=SANDBOX"):
        read_capture(source, control.asn)


def test_registration_is_read_whole(source: CountingSource, control: ControlTables) -> None:
    control.add("T", STATE="S", STATE_INFO="ASN0069E", CHG_UPD_TO_DEL_INS="N", BEFORE_IMG_PREFIX="X")
    control.set("T", CD_OLD_SYNCHPOINT=lsn(7).raw, CD_NEW_SYNCHPOINT=lsn(9).raw)
    control.insert("IBMSNAP_RESTART", CAPTURE_FIRST_SEQ=lsn(3).raw)
    [instance] = read_registrations(source, control.asn).values()
    assert (instance.state, instance.state_info) == ("S", "ASN0069E")
    assert (instance.update_as, instance.before_prefix) == ("U", "X")
    assert (instance.pruned_upto, instance.new_synchpoint) == (lsn(7), lsn(9))
    assert instance.cd_names == ("IBMSNAP_COMMITSEQ", "IBMSNAP_INTENTSEQ", "IBMSNAP_OPERATION", "ID", "V")
    assert instance.identity.change_table == f"{control.asn}.CD_T"
    assert instance.identity.created == "2026-01-02T03:04:05.678901"
    assert instance.identity.source_created == "2025-12-31T23:59:59.999999"
    assert instance.identity.cold_start == str(lsn(3))


def test_change_table_that_is_gone_has_no_columns(source: CountingSource, control: ControlTables) -> None:
    control.add("T")
    control.set("T", CD_TABLE="GONE")
    [instance] = read_registrations(source, control.asn).values()
    assert instance.cd_columns == ()
    assert instance.identity.created == ""


def test_registration_of_the_table_itself_is_taken_before_its_views(
    source: CountingSource, control: ControlTables
) -> None:
    control.add("T", SOURCE_VIEW_QUAL=1, CD_TABLE="CD_OF_VIEW")
    control.register("T")
    [instance] = read_registrations(source, control.asn).values()
    assert instance.cd_table == "CD_T"


def test_columns_are_those_that_the_change_table_carries_by_name(
    source: CountingSource, control: ControlTables
) -> None:
    late = (("LATE", "INTEGER", 4, "Y"), ("DOC", "CLOB", 99, "Y"))
    control.add("T", (("V", "VARCHAR", 20, "Y"), ("ID", "INTEGER", 4, "N"), *late), carried=("ID", "V", "DOC"))
    schema = schema_of(source, control)
    assert schema.columns == (
        Column("V", "VARCHAR", 20, 0, True, False),
        Column("ID", "INTEGER", 4, 0, False, False),
    )
    assert schema.uncaptured_columns == ("LATE", "DOC")
    assert schema.key == ("ID",)


PREFIXED = tuple((name, "INTEGER", 4, "N") for name in ("ID", "A", "XA"))


def test_before_image_that_has_another_columns_name_is_refused_as_unclear(
    source: CountingSource, control: ControlTables, config: PipelineConfig
) -> None:
    """Registered are ID and A with its before image XA; the table has a column XA of its own."""
    table = control.add("T", PREFIXED, BEFORE_IMG_PREFIX="X")
    [instance] = read_registrations(source, control.asn).values()
    schema = schema_of(source, control)
    assert [name for name, error in failed_requirements(instance, schema, config) if error] == ["before images"]
    with pytest.raises(RegistrationError, match=rf"of {table} .*XA \(of A\)\. Exclude .*column\.exclude\.list"):
        require(instance, schema, config)
    without = Selection(column_exclude=(rf"{control.schema}\.T\.XA",))
    require(instance, schema_of(source, control, selection=without), config)


@pytest.mark.parametrize("excluded", [(), (r".*\.XA",)])
def test_column_that_looks_like_a_before_image_is_refused(
    source: CountingSource, control: ControlTables, config: PipelineConfig, excluded: tuple[str, ...]
) -> None:
    """The key has a before image of its own: without XA it looks as if each column had one."""
    control.add("T", PREFIXED, BEFORE_IMG_PREFIX="X")
    [instance] = read_registrations(source, control.asn).values()
    told = replace(instance, cd_columns=(*instance.cd_columns, *images("XID")))
    schema = schema_of(source, control, selection=Selection(column_exclude=excluded))
    with pytest.raises(RegistrationError, match=r"XA \(of A\)\. Register the table again with another"):
        require(told, schema, config)


def test_uncaptured_column_makes_no_before_image_unclear(
    source: CountingSource, control: ControlTables, config: PipelineConfig
) -> None:
    control.add("T", PREFIXED, carried=("ID", "A"), BEFORE_IMG_PREFIX="X")
    [instance] = read_registrations(source, control.asn).values()
    require(instance, schema_of(source, control), config)


@pytest.mark.parametrize(("prefix", "more"), [(None, ()), ("Y", ()), ("X", ("XXA",))])
def test_captured_column_that_is_not_a_before_image_is_replicated(
    source: CountingSource, control: ControlTables, config: PipelineConfig, prefix: str | None, more: tuple[str, ...]
) -> None:
    shapes = (*PREFIXED, *((name, "INTEGER", 4, "Y") for name in more))
    registered: dict[str, Any] = {"BEFORE_IMG_PREFIX": prefix} if prefix else {}
    control.add("T", shapes, **registered)
    [instance] = read_registrations(source, control.asn).values()
    schema = schema_of(source, control, selection=Selection(column_exclude=tuple(rf".*\.{name}" for name in more)))
    require(instance, schema, config)
    assert schema.names == ("ID", "A", "XA")


def test_long_columns_that_are_not_logged_are_refused_unless_excluded(
    source: CountingSource, control: ControlTables, config: PipelineConfig
) -> None:
    table = control.add("T", (("ID", "INTEGER", 4, "N"), ("MEMO", "LONG VARCHAR", 32700, "Y")))
    [instance] = read_registrations(source, control.asn).values()
    long = rf"^{table} lacks DATA CAPTURE CHANGES INCLUDE LONGVAR COLUMNS, without which values of MEMO are not"
    with pytest.raises(RegistrationError, match=long):
        require(instance, schema_of(source, control), config)
    require(instance, schema_of(source, control, selection=Selection(column_exclude=(r".*\.MEMO",))), config)
    control.run(f"UPDATE SANDBOX_SYSCAT.TABLES SET DATACAPTURE = 'L' WHERE TABSCHEMA = '{control.schema}'")
    [instance] = read_registrations(source, control.asn).values()
    require(instance, schema_of(source, control), config)


TYPED = (("ID", "INTEGER", 4, "N"), ("PRICE", "DECIMAL", 11, "Y"), ("V", "VARCHAR", 20, "Y"))


@pytest.mark.parametrize(
    ("change", "cut"),
    [
        ("SCALE = 2 WHERE COLNAME = 'PRICE'", r"PRICE \(DECIMAL\(11,4\), there DECIMAL\(11,2\)\)"),
        ("TYPENAME = 'REAL' WHERE COLNAME = 'PRICE'", r"PRICE \(DECIMAL\(11,4\), there REAL\)"),
        ("CODEPAGE = 0 WHERE COLNAME = 'V'", r"V \(VARCHAR\(20\), there VARCHAR\(20\) FOR BIT DATA\)"),
    ],
)
def test_change_table_that_would_cut_values_is_refused(
    source: CountingSource, control: ControlTables, config: PipelineConfig, change: str, cut: str
) -> None:
    table = control.add("T", TYPED)
    control.run("UPDATE SANDBOX_SYSCAT.COLUMNS SET SCALE = 4 WHERE COLNAME = 'PRICE'")
    [instance] = read_registrations(source, control.asn).values()
    require(instance, schema_of(source, control), config)
    control.run(f"UPDATE SANDBOX_SYSCAT.COLUMNS SET {change} AND TABSCHEMA = '{control.asn}'")
    [instance] = read_registrations(source, control.asn).values()
    schema = schema_of(source, control)
    assert [name for name, error in failed_requirements(instance, schema, config) if error] == ["values"]
    problem = rf"^the change table of {table} \({control.asn}\.CD_T\) cuts values of {cut}\. ALTER its columns"
    with pytest.raises(RegistrationError, match=problem):
        require(instance, schema, config)
    require(instance, schema_of(source, control, selection=Selection(column_include=(r".*\.ID",))), config)


def test_bit_data_is_recognized_by_code_page_0(source: CountingSource, control: ControlTables) -> None:
    control.add("T")
    control.run(f"UPDATE SANDBOX_SYSCAT.COLUMNS SET CODEPAGE = 0 WHERE TABSCHEMA = '{control.schema}'")
    assert [column.bit_data for column in schema_of(source, control).columns] == [False, True]


def test_chosen_columns_keep_the_key(source: CountingSource, control: ControlTables) -> None:
    control.add("T", (("ID", "INTEGER", 4, "N"), ("A", "INTEGER", 4, "Y"), ("B", "INTEGER", 4, "Y")))
    schema = schema_of(source, control, selection=Selection(column_include=(r".*\.B",)))
    assert schema.names == ("ID", "B")
    assert (schema.uncaptured_columns, schema.excluded_columns) == ((), ("A",))


KEYED = (
    ("A", "INTEGER", 4, "N"),
    ("B", "INTEGER", 4, "N"),
    ("C", "INTEGER", 4, "N"),
    ("N", "INTEGER", 4, "Y"),
    ("M", "INTEGER", 4, "Y"),
)


@pytest.mark.parametrize(
    ("primary", "unique", "key"),
    [
        (("C", "B"), [("A",)], ("C", "B")),
        ((), [("A", "B"), ("C",)], ("C",)),
        ((), [("B",), ("A",)], ("B",)),
        ((), [("N",), ("A", "C")], ("A", "C")),
        ((), [("M", "A"), ("N",)], ("N",)),
        ((), [("N",), ("M",)], ("N",)),
        ((), [], ()),
    ],
    ids=[
        "primary first, in its own order",
        "smallest unique",
        "first by name",
        "nullable last",
        "smallest nullable",
        "first nullable by name",
        "none",
    ],
)
def test_key_is_the_primary_key_else_the_smallest_unique_index(
    source: CountingSource,
    control: ControlTables,
    primary: tuple[str, ...],
    unique: list[tuple[str, ...]],
    key: tuple[str, ...],
) -> None:
    control.add("T", KEYED, key=primary)
    for columns in unique:
        control.index(control.schema, "T", "U", columns, include=("N",))
    control.index(control.schema, "T", "D", ("B",))
    assert schema_of(source, control).key == key


def test_key_column_that_is_not_captured_makes_no_key(source: CountingSource, control: ControlTables) -> None:
    control.add("T", KEYED, key=("A",), carried=("B", "C"))
    control.index(control.schema, "T", "U", ("B", "C"))
    assert schema_of(source, control).key == ("B", "C")


@pytest.mark.parametrize(
    ("columns", "key"),
    [(("N",), ()), (("A", "N"), ()), (("B", "A"), ("B", "A"))],
    ids=["nullable", "partly", "not null"],
)
def test_index_without_null_keys_is_a_key_if_no_column_is_nullable(
    source: CountingSource, control: ControlTables, columns: tuple[str, ...], key: tuple[str, ...]
) -> None:
    control.add("T", KEYED, key=())
    control.index(control.schema, "T", "U", columns, null_keys="N")
    assert schema_of(source, control).key == key


def test_nullable_key_column_that_is_not_captured_makes_no_key(source: CountingSource, control: ControlTables) -> None:
    control.add("T", KEYED, key=(), carried=("A", "B"))
    control.index(control.schema, "T", "U", ("N", "A"))
    assert schema_of(source, control).key == ()


def keyed_by(control: ControlTables, columns: str, **lists: Any) -> Selection:
    """A selection that names the key of table T."""
    return Selection(message_key=rf"{control.schema}\.T:{columns}", **lists)


def test_named_columns_replace_the_key_of_the_table(source: CountingSource, control: ControlTables) -> None:
    control.add("T", KEYED, key=("A",))
    control.add("OTHER", KEYED, key=("A",))
    selection = keyed_by(control, "n,B")
    assert schema_of(source, control, selection=selection).key == ("N", "B")
    assert schema_of(source, control, "OTHER", selection).key == ("A",)


def test_named_columns_are_included_even_if_a_list_excludes_them(
    source: CountingSource, control: ControlTables
) -> None:
    control.add("T", KEYED, key=("A",))
    schema = schema_of(source, control, selection=keyed_by(control, "N", column_include=(r".*\.C",)))
    assert (schema.names, schema.key) == (("C", "N"), ("N",))


@pytest.mark.parametrize(
    ("columns", "lacking"),
    [("N,NOPE", "NOPE"), ("M", "M"), ('"n"', '"n"'), ("gone,B,NOPE", "gone, NOPE")],
    ids=["one of two", "not captured", "quoted in another case", "several"],
)
def test_named_column_that_is_not_captured_refuses_the_table(
    source: CountingSource, control: ControlTables, config: PipelineConfig, columns: str, lacking: str
) -> None:
    table = control.add("T", KEYED, key=("A",), carried=("A", "B", "C", "N"))
    [instance] = read_registrations(source, control.asn).values()
    selection = keyed_by(control, columns, column_exclude=(r".*\.(B|N)",))
    schema = schema_of(source, control, selection=selection)
    assert schema.key == ()
    problem = rf"^message\.key\.columns names {lacking} of {table}, which has no such captured column"
    with pytest.raises(ConfigurationError, match=problem):
        require(instance, schema, config.model_copy(update={"selection": selection}))


def test_table_without_a_key_is_accepted_if_updates_have_both_rows(
    source: CountingSource, control: ControlTables, config: PipelineConfig
) -> None:
    control.add("T", KEYED, key=())
    [instance] = read_registrations(source, control.asn).values()
    schema = schema_of(source, control)
    require(instance, schema, config)
    assert (schema.key, schema.row_key) == ((), schema.names)


def test_table_without_a_key_is_refused_if_a_select_may_split_equal_rows(
    source: CountingSource, control: ControlTables, config: PipelineConfig
) -> None:
    table = control.add("T", KEYED, key=())
    [instance] = read_registrations(source, control.asn).values()
    overridden = config.model_copy(update={"snapshot_overrides": {str(table).lower(): "SELECT 1"}})
    with pytest.raises(ConfigurationError, match=rf"^{table} has no key, so of equal rows its select"):
        require(instance, schema_of(source, control), overridden)
    named = keyed_by(control, "A")
    require(instance, schema_of(source, control, selection=named), overridden.model_copy(update={"selection": named}))
    none = {f'"{table.schema}"."t"': "SELECT 1", str(table): " "}
    others = config.model_copy(update={"snapshot_overrides": none})
    require(instance, schema_of(source, control), others)


def test_update_rows_are_accepted_if_each_column_has_a_before_image(
    source: CountingSource, control: ControlTables, config: PipelineConfig
) -> None:
    control.add("T", CHG_UPD_TO_DEL_INS="N", BEFORE_IMG_PREFIX="X")
    [instance] = read_registrations(source, control.asn).values()
    schema = schema_of(source, control)
    with pytest.raises(RegistrationError, match="without a before image of each column"):
        require(replace(instance, cd_columns=(*instance.cd_columns, *images("XID"))), schema, config)
    require(replace(instance, cd_columns=(*instance.cd_columns, *images("XID", "XV"))), schema, config)


def test_table_without_a_key_is_refused_if_updates_have_one_row(
    source: CountingSource, control: ControlTables, config: PipelineConfig
) -> None:
    table = control.add("T", KEYED, key=(), CHG_UPD_TO_DEL_INS="N")
    config = config.model_copy(update={"accept_update_rows": True})
    [instance] = read_registrations(source, control.asn).values()
    with pytest.raises(
        RegistrationError,
        match=rf"has no key.*then reinit.*message\.key\.columns \('{name_of(table)}:<column>,<column>'\)",
    ):
        require(instance, schema_of(source, control), config)
    named = keyed_by(control, "A")
    require(instance, schema_of(source, control, selection=named), config.model_copy(update={"selection": named}))


def test_table_with_a_wrong_key_is_refused_and_the_others_continue(
    source: CountingSource, control: ControlTables, config: PipelineConfig
) -> None:
    control.add("T", KEYED)
    control.add("OTHER", KEYED, key=("A",))
    settings = config.model_copy(update={"selection": keyed_by(control, "NOPE")})
    spec = plan_tick(source, settings, MemoryOffsets(), TickRun("run-1", 1))
    assert spec is not None
    assert [task.table.name for task in spec.tables] == ["OTHER"]
    assert [refusal.table.name for refusal in spec.rejected] == ["T"]


def test_names_with_lower_case_quotes_and_blanks_are_found(source: CountingSource, control: ControlTables) -> None:
    control.add("order Line's")
    schema = schema_of(source, control, "order Line's")
    assert schema.names == ("ID", "V")


def test_table_missing_from_the_catalog_has_no_columns(source: CountingSource, control: ControlTables) -> None:
    control.register("GHOST")
    schema = schema_of(source, control, "GHOST")
    assert (schema.columns, schema.key) == ((), ())


def test_many_tables_need_few_statements(source: CountingSource, control: ControlTables) -> None:
    for number in range(120):
        control.register(f"T{number}")
    instances = read_registrations(source, control.asn)
    before = source.statements
    assert len(read_schemas(source, instances.values(), ALL)) == 120
    assert source.statements - before == 4


@pytest.mark.parametrize(("registered", "stored"), [("T ", "T "), ("T", "T "), ("T ", "T"), ("T\u3000", "T\u3000")])
def test_blanks_at_the_end_of_a_name_are_as_in_the_registration(
    source: CountingSource, control: ControlTables, registered: str, stored: str
) -> None:
    control.add(stored, SOURCE_TABLE=registered)
    control.add("U")
    table = TableId(control.schema, registered)
    instances = read_registrations(source, control.asn)
    assert set(instances) == {table, control.table("U")}
    assert instances[table].change_table == TableId(control.asn, f"CD_{stored}")
    assert instances[table].identity.source_created == "2025-12-31T23:59:59.999999"
    schema = read_schemas(source, instances.values(), ALL)[table]
    assert (schema.table, schema.names, schema.key) == (table, ("ID", "V"), ("ID",))
    assert set(read_conditions(source, control.asn)) == set(instances)


def test_names_that_differ_only_in_blanks_at_the_end_do_not_share_columns(
    source: CountingSource, control: ControlTables
) -> None:
    """Db2 knows no such names, but a source that did must not mix them."""
    control.add("T")
    control.register("T ", CD_TABLE="CD_T")
    control._catalog(control.schema, "T ", (("OTHER", "INTEGER", 4, "N"),), "2025-12-31 23:59:59.000000")
    columns = read_columns(source, [control.table("T"), control.table("T ")])
    names = {table.name: [column.name for column in found] for table, found in columns.items()}
    assert names == {"T": ["ID", "V"], "T ": ["OTHER"]}
