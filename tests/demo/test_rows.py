from datetime import date, datetime
from decimal import Decimal

import pytest

from airflow_provider_db2cdc.demo.comparison.rows import by_key, differing, portable

COLUMNS, KEY = ["ID", "NAME"], ("ID",)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "a "),
        ("", None),
        ("1", 1),
        (1, 1.0),
        (1, Decimal(1)),
        (Decimal("1.5"), Decimal("1.50")),
        (0.1, 0.1 + 2**-56),
        (date(2026, 1, 1), datetime(2026, 1, 1)),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, microsecond=1)),
        ("\u00e9", "e\u0301"),
    ],
)
def test_what_is_not_the_same_value_is_not_the_same_text(one: object, other: object) -> None:
    assert portable(one) != portable(other)


def test_null_stays_null() -> None:
    assert portable(None) is None


@pytest.mark.parametrize("value", [True, b"bytes", [1]])
def test_a_type_that_the_shop_has_not_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="the shop has no"):
        portable(value)


@pytest.mark.parametrize(
    ("target", "keys"),
    [
        ([["1", "a"], ["2", "b"]], []),
        ([["2", "b"], ["1", "a"]], []),
        ([["1", "a"]], [("2",)]),
        ([["1", "a"], ["2", "b"], ["3", "c"]], [("3",)]),
        ([["1", "a"], ["2", "x"]], [("2",)]),
        ([["1", "a"], ["2", "b"], ["2", "b"]], [("2",)]),
        ([["1", "a"], ["2", None]], [("2",)]),
    ],
)
def test_missing_surplus_changed_and_double_rows_differ(target: list[list[str | None]], keys: list[tuple[str]]) -> None:
    source = by_key(COLUMNS, [["1", "a"], ["2", "b"]], KEY)
    assert differing(source, by_key(COLUMNS, target, KEY)) == keys
