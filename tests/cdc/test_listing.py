from __future__ import annotations

from airflow_provider_db2cdc.cdc.listing import shortened


def test_few_items_are_all_listed() -> None:
    assert shortened([1, 2, 3], most=3) == "1, 2, 3"
    assert shortened([]) == ""


def test_of_many_items_the_rest_is_counted() -> None:
    assert shortened(range(5), most=2, separator="; ") == "0; 1; and 3 more"
