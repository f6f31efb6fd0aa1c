import pytest
from control_tables import lsn

from airflow_provider_db2cdc.cdc.selection import Selection
from airflow_provider_db2cdc.cdc.table import Column
from airflow_provider_db2cdc.errors import CaptureStoppedError
from airflow_provider_db2cdc.source.catalog import read_capture, read_fence, read_instances, read_schemas

pytestmark = pytest.mark.sandbox

ALL = Selection()


def schema_of(source, control, name="T", selection=ALL):
    instances = read_instances(source, control.asn)
    return read_schemas(source, instances.values(), selection)[control.table(name)]


def test_fence_is_the_greatest_synchpoint_with_its_age(source, control):
    control.add("T")
    control.synch(100, age_s=40)
    fence = read_fence(source, control.asn)
    assert fence.lsn == lsn(100)
    assert 39 < fence.age_s < 60
    control.set("T", CD_NEW_SYNCHPOINT=lsn(120).raw)
    assert read_fence(source, control.asn).lsn == lsn(120)


def test_stopped_registration_does_not_move_the_fence(source, control):
    control.add("T", STATE="S")
    control.set("T", CD_NEW_SYNCHPOINT=lsn(120).raw)
    assert read_fence(source, control.asn).lsn == lsn(100)


def test_agent_that_never_ran_is_told(source, control):
    control.run(f"UPDATE {control.asn}.IBMSNAP_REGISTER SET SYNCHPOINT = NULL, SYNCHTIME = NULL")
    with pytest.raises(CaptureStoppedError, match=r"never ran.*asncap capture_server=SANDBOX"):
        read_capture(source, control.asn)


def test_registration_is_read_whole(source, control):
    control.add("T", STATE="S", STATE_INFO="ASN0069E", CHG_UPD_TO_DEL_INS="N", BEFORE_IMG_PREFIX="X")
    control.set("T", CD_OLD_SYNCHPOINT=lsn(7).raw, CD_NEW_SYNCHPOINT=lsn(9).raw)
    control.insert("IBMSNAP_RESTART", CAPTURE_FIRST_SEQ=lsn(3).raw)
    [instance] = read_instances(source, control.asn).values()
    assert (instance.state, instance.state_info) == ("S", "ASN0069E")
    assert (instance.update_as, instance.before_prefix) == ("U", "X")
    assert (instance.floor, instance.newest) == (lsn(7), lsn(9))
    assert instance.cd_columns == ("IBMSNAP_COMMITSEQ", "IBMSNAP_INTENTSEQ", "IBMSNAP_OPERATION", "ID", "V")
    assert instance.identity.change_table == f"{control.asn}.CD_T"
    assert instance.identity.created == "2026-01-02T03:04:05.678901"
    assert instance.identity.cold_start == str(lsn(3))


def test_change_table_that_is_gone_has_no_columns(source, control):
    control.add("T")
    control.set("T", CD_TABLE="GONE")
    [instance] = read_instances(source, control.asn).values()
    assert instance.cd_columns == ()
    assert instance.identity.created == ""


def test_registration_of_the_table_itself_is_taken_before_its_views(source, control):
    control.add("T", SOURCE_VIEW_QUAL=1, CD_TABLE="CD_OF_VIEW")
    control.register("T")
    [instance] = read_instances(source, control.asn).values()
    assert instance.cd_table == "CD_T"


def test_columns_are_those_that_the_change_table_carries_by_name(source, control):
    late = (("LATE", "INTEGER", 4, "Y"), ("DOC", "CLOB", 99, "Y"))
    control.add("T", (("V", "VARCHAR", 20, "Y"), ("ID", "INTEGER", 4, "N"), *late), carried=("ID", "V", "DOC"))
    schema = schema_of(source, control)
    assert schema.columns == (
        Column("V", "VARCHAR", 20, 0, True, False),
        Column("ID", "INTEGER", 4, 0, False, False),
    )
    assert schema.missing == ("LATE", "DOC")
    assert schema.key == ("ID",)


def test_bit_data_is_told_by_code_page_0(source, control):
    control.add("T")
    control.run(f"UPDATE SANDBOX_SYSCAT.COLUMNS SET CODEPAGE = 0 WHERE TABSCHEMA = '{control.schema}'")
    assert [column.bit_data for column in schema_of(source, control).columns] == [False, True]


def test_chosen_columns_keep_the_key(source, control):
    control.add("T", (("ID", "INTEGER", 4, "N"), ("A", "INTEGER", 4, "Y"), ("B", "INTEGER", 4, "Y")))
    schema = schema_of(source, control, selection=Selection(column_include=(r".*\.B",)))
    assert schema.names == ("ID", "B")
    assert schema.missing == ()


KEYED = (("A", "INTEGER", 4, "N"), ("B", "INTEGER", 4, "N"), ("C", "INTEGER", 4, "N"), ("N", "INTEGER", 4, "Y"))


@pytest.mark.parametrize(
    ("primary", "unique", "key"),
    [
        (("C", "B"), [("A",)], ("C", "B")),
        ((), [("A", "B"), ("C",)], ("C",)),
        ((), [("N",), ("A", "C")], ("A", "C")),
        ((), [("N",)], ()),
        ((), [], ()),
    ],
    ids=["primary first, in its own order", "smallest unique", "no nullable", "only nullable", "none"],
)
def test_key_is_the_primary_key_else_the_smallest_unique_index(source, control, primary, unique, key):
    control.add("T", KEYED, key=primary)
    for columns in unique:
        control.index(control.schema, "T", "U", columns, include=("N",))
    control.index(control.schema, "T", "D", ("B",))
    assert schema_of(source, control).key == key


def test_key_column_that_is_not_captured_makes_no_key(source, control):
    control.add("T", KEYED, key=("A",), carried=("B", "C"))
    control.index(control.schema, "T", "U", ("B", "C"))
    assert schema_of(source, control).key == ("B", "C")


def test_names_with_lower_case_quotes_and_blanks_are_found(source, control):
    control.add("order Line's")
    schema = schema_of(source, control, "order Line's")
    assert schema.names == ("ID", "V")


def test_table_that_the_catalog_lacks_comes_without_columns(source, control):
    control.register("GHOST")
    schema = schema_of(source, control, "GHOST")
    assert (schema.columns, schema.key) == ((), ())


def test_many_tables_need_few_statements(source, control):
    for number in range(120):
        control.register(f"T{number}")
    instances = read_instances(source, control.asn)
    before = source.statements
    assert len(read_schemas(source, instances.values(), ALL)) == 120
    assert source.statements - before == 4
