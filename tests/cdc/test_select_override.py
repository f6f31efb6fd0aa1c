import pytest

from airflow_provider_db2cdc.cdc.selection.select_override import check_overrides, selects_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

ORDERS, LINES, SMALL, ODD = (
    TableId("SALES", "ORDERS"),
    TableId("SALES", "Lines"),
    TableId("SALES", "LINES"),
    TableId("my s", "a.b"),
)
TABLES = [ORDERS, LINES, SMALL, ODD]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("SALES.ORDERS", ORDERS),
        ("sales.orders", ORDERS),
        ('"SALES"."ORDERS"', ORDERS),
        ("SALES.Lines", LINES),
        ('SALES."LINES"', SMALL),
        ('"my s"."a.b"', ODD),
    ],
)
def test_name_means_a_table_exactly_or_without_regard_to_case(name: str, table: TableId) -> None:
    check_overrides([name], {name: "SELECT 1"})
    assert selects_of({name: "SELECT 1"}, TABLES) == {table: "SELECT 1"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SALES.GONE", "'SALES.GONE' is no table of this pipeline"),
        ('"sales"."ORDERS"', "is no table"),
        ("sales.lines", r"may be several tables.* one of SALES\.LINES, SALES\.Lines, with double quotes"),
        ("SALES.ORD.*", "is not schema.table"),
    ],
)
def test_name_that_means_no_table_or_several_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"snapshot\.select\.statement\.overrides.*{words}"):
        selects_of({name: "SELECT 1"}, TABLES)


def test_two_selects_of_a_table_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"SALES\.ORDERS has two selects"):
        selects_of({"SALES.ORDERS": "SELECT 1", '"SALES"."ORDERS"': "SELECT 2"}, TABLES)


@pytest.mark.parametrize(
    ("listed", "selects", "words"),
    [
        (["S.T"], {}, r"overrides\.S\.T is missing"),
        (["S.T"], {"S.T": " "}, r"overrides\.S\.T is missing"),
        (["S.T"], {"s.t": "SELECT 1", "S.U": "SELECT 1"}, r"overrides\.S\.U is given, though"),
        (["T"], {"T": "SELECT 1"}, "'T' is not schema.table"),
    ],
)
def test_list_and_selects_belong_together(listed: list[str], selects: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_overrides(listed, selects)


ISOLATED = "SELECT * FROM S.T WHERE A = 1"


@pytest.mark.parametrize(
    "select",
    [
        f"{ISOLATED} WITH UR",
        f"{ISOLATED}\n\twith  ur\n",
        f"{ISOLATED} WITH/* as before */UR -- fast",
        f"{ISOLATED} WITH UR FOR READ ONLY",
        f"SELECT * FROM ({ISOLATED} WITH UR) AS X",
        "SELECT * FROM S.T WHERE A = '''' WITH UR",
        "WITH UR AS (SELECT 1 FROM S.T) SELECT * FROM UR With Ur",
    ],
)
def test_select_of_uncommitted_rows_is_refused(select: str) -> None:
    with pytest.raises(ConfigurationError, match=r"overrides\.S\.T reads uncommitted rows \(WITH UR\).*rolled back"):
        check_overrides(["S.T"], {"S.T": select})


@pytest.mark.parametrize(
    "select",
    [
        *(f"{ISOLATED} WITH {level}" for level in ("CS", "RS", "RR", "RR USE AND KEEP SHARE LOCKS")),
        "SELECT * FROM S.T WHERE A = 'not WITH UR'",
        "SELECT * FROM S.T WHERE A = 'it''s WITH UR'",
        'SELECT "a WITH UR" FROM S.T',
        f"{ISOLATED} -- never WITH UR",
        f"{ISOLATED} /* never\nWITH UR */",
        f"{ISOLATED} WITH URGENT",
        "WITH UR AS (SELECT 1 FROM S.T) SELECT * FROM UR",
        "WITH UR (A) AS (SELECT 1 FROM S.T) SELECT * FROM UR",
    ],
)
def test_select_of_committed_rows_is_allowed(select: str) -> None:
    check_overrides(["S.T"], {"S.T": select})
