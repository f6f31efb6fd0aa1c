import re
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

PATH, CATALOG = Layout("/lake/sales"), Layout("main.sales")

# Letters that could form our own separators and escapes, so that a collision is found where there is one.
tricky = st.text("Aa_X5x6F1.", min_size=1, max_size=12)
odd = st.text(min_size=1, max_size=20)
names = tricky | odd
tables = st.builds(TableId, names, names)

ESCAPE = re.compile("_x([0-9a-f]+)_")


def decode(name: str) -> list[str]:
    """Read a catalog name back into its parts: an escape where one begins, else two underscores separate."""
    parts, at = [""], 0
    while at < len(name):
        if escape := ESCAPE.match(name, at):
            parts[-1] += chr(int(escape[1], 16))
            at = escape.end()
        elif name.startswith("__", at):
            parts.append("")
            at += 2
        else:
            parts[-1] += name[at].upper()
            at += 1
    return parts


@given(tables)
def test_a_catalog_name_reads_back_as_the_same_table(table: TableId) -> None:
    name = CATALOG.state(table).name.split(".")[-1].strip("`")
    assert decode(name) == [table.schema, table.name]


@given(tables)
def test_the_names_of_a_tables_other_tables_read_back_with_their_suffix(table: TableId) -> None:
    name = CATALOG.changes(table).name.split(".")[-1].strip("`")
    assert name.endswith("__changes")
    assert decode(name)[:2] == [table.schema, table.name]


@given(tables)
def test_a_path_reads_back_as_the_same_table(table: TableId) -> None:
    folders = PATH.state(table).name.split("/")
    assert folders[:4] == ["", "lake", "sales", "tables"]
    assert [unquote(folder.replace("-", "%")) for folder in folders[4:]] == [table.schema, table.name]


@given(st.lists(tables, min_size=2, max_size=2, unique=True))
@pytest.mark.parametrize("layout", [PATH, CATALOG], ids=["path", "catalog"])
def test_two_tables_never_share_a_place(layout: Layout, pair: list[TableId]) -> None:
    one, other = pair
    places = [place(table) for table in (one, other) for place in (layout.state, layout.changes)]
    places += [layout.internal(name) for name in ("batches", "commits", "manifest")]
    assert len({place.name.lower() if layout is CATALOG else place.name for place in places}) == 7


@given(tables)
def test_a_folder_is_visible_and_unchanged_by_url_decoding(table: TableId) -> None:
    for folder in PATH.state(table).name.split("/")[4:]:
        assert re.fullmatch(r"[A-Za-z0-9-][A-Za-z0-9._-]*", folder)
        assert quote(folder) == unquote(folder) == folder


@given(tables)
def test_a_catalog_name_is_plain_lower_case_so_that_no_catalog_folds_it(table: TableId) -> None:
    assert re.fullmatch(r"`main`\.`sales`\.`[a-z0-9_]+`", CATALOG.state(table).name)


@pytest.mark.parametrize(
    "name", ["顧客注文明細履歴" * 4, "_" + "é" * 63, "A" + "é" * 63, "AB" + "é" * 63, "." * 128, "-" * 128]
)
def test_no_name_that_db2_takes_is_too_long_for_a_folder(name: str, tmp_path: Path) -> None:
    assert len(name.encode()) <= 128
    places = {PATH.state(TableId("S", one)).name.rsplit("/")[-1] for one in (name, name[:-1], name[:-1] + "A")}
    assert len(places) == 3
    for place in places:
        (tmp_path / place).mkdir()
        assert not place.startswith((".", "_"))
        assert re.fullmatch("([A-Za-z0-9._]|-[0-9A-F]{2})+(--[0-9a-f]{16})?", place), "no half of an escape"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TableId("S", "AaB"), TableId("S", "A_X61_B")),
        (TableId("S", "Aa"), TableId("S", "A_X61_")),
        (TableId("A", "B__C"), TableId("A__B", "C")),
        (TableId("A_XA", "aB"), TableId("A\n", "X61_B")),
        (TableId("S", "T"), TableId("s", "t")),
        (TableId("S", "T__CHANGES"), TableId("S", "T__STAGING")),
        (TableId("S_", "T"), TableId("S", "_T")),
    ],
)
def test_look_alikes_differ_in_a_catalog(one: TableId, other: TableId) -> None:
    assert CATALOG.state(one) != CATALOG.state(other)


def test_a_table_named_like_anothers_change_log_is_not_taken_for_it() -> None:
    assert CATALOG.state(TableId("S", "T__CHANGES")) != CATALOG.changes(TableId("S", "T"))
    assert CATALOG.state(TableId("_DB2CDC", "BATCHES")) != CATALOG.internal("batches")


@pytest.mark.parametrize(
    ("table", "path", "catalog"),
    [
        (TableId("SALES", "ORDER_LINE"), "SALES/ORDER_LINE", "sales__order_line"),
        (TableId("SALES", "TAX_XREF"), "SALES/TAX_XREF", "sales__tax_xref"),
        (TableId("Sales", "Order"), "Sales/Order", "s_x61__x6c__x65__x73___o_x72__x64__x65__x72_"),
        (TableId("S", "A B/C"), "S/A-20B-2FC", "s__a_x20_b_x2f_c"),
        (TableId("S", ".."), "S/-2E.", "s___x2e__x2e_"),
        (TableId("S", "_delta_log"), "S/-5Fdelta_log", "s___x5f__x64__x65__x6c__x74__x61__x5f__x6c__x6f__x67_"),
        (TableId("S", "_T"), "S/-5FT", "s___x5f_t"),
        (TableId("S", "50%"), "S/50-25", "s__50_x25_"),
        (TableId("S", "A-2DB"), "S/A-2D2DB", "s__a_x2d_2db"),
        (TableId("S", "T "), "S/T-20", "s__t_x20_"),
        (TableId("S", "ORDER$"), "S/ORDER-24", "s__order_x24_"),
        (TableId("S", "Ä"), "S/-C3-84", "s___xc4_"),
    ],
)
def test_places_of_names(table: TableId, path: str, catalog: str) -> None:
    assert PATH.state(table).name == f"/lake/sales/tables/{path}"
    assert PATH.changes(table).name == f"/lake/sales/changes/{path}"
    assert CATALOG.state(table).name == f"`main`.`sales`.`{catalog}`"
    assert CATALOG.changes(table).name == f"`main`.`sales`.`{catalog}__changes`"


@pytest.mark.parametrize(
    ("target", "internal"),
    [
        ("/lake/sales", "/lake/sales/_db2cdc/batches"),
        ("/lake/sales//", "/lake/sales/_db2cdc/batches"),
        ("s3a://lake/sales", "s3a://lake/sales/_db2cdc/batches"),
        ("lake/sales", "lake/sales/_db2cdc/batches"),
        ("sales", "`sales`.`_db2cdc_batches`"),
        ("main.sales", "`main`.`sales`.`_db2cdc_batches`"),
    ],
)
def test_a_target_with_a_slash_or_a_colon_is_a_path_any_other_a_schema(target: str, internal: str) -> None:
    layout = Layout(target)
    assert layout.internal("batches").name == internal
    assert layout.is_path == layout.internal("batches").is_path == ("`" not in internal)


@pytest.mark.parametrize("target", ["", " ", "a.b.c", "a b", ".a", "a.", "a`b", "sales\n"])
def test_a_target_that_is_neither_path_nor_schema_is_refused(target: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a path nor a catalog's schema"):
        Layout(target)


@pytest.mark.parametrize(
    "target", ["s3a://AKIA1:s3cret@lake/sales", "s3a://AKIA1:s3cr/et@lake", "hdfs://u:s3cret@h:1/x"]
)
def test_a_target_that_holds_a_login_is_refused_and_not_shown(target: str) -> None:
    with pytest.raises(ConfigurationError, match="the target holds a login") as refused:
        Layout(target)
    assert "s3cr" not in str(refused.value)


@pytest.mark.parametrize(
    "target", ["abfss://box@account.dfs.core.windows.net/a:b@c", "s3a://lake/a:b@c", "/a:b@c", "hdfs://h:1/a@b/c"]
)
def test_a_target_with_an_at_sign_elsewhere_holds_no_login(target: str) -> None:
    assert Layout(target).is_path
