from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema, check_names
from airflow_provider_db2cdc.errors import ConfigurationError

ID, NAME = Column("ID", "INTEGER", 4, nullable=False), Column("NAME", "VARCHAR", 10)
SCHEMA = TableSchema(TableId("S", "T"), (ID, NAME), ("ID",))


def named(*names: str) -> TableSchema:
    return replace(SCHEMA, columns=tuple(Column(name, "INTEGER") for name in names))


@pytest.mark.parametrize("name", ["T", "T ", " T", "T\u3000", "T\u00a0", "T\t", "Ş "])
def test_a_catalog_name_loses_only_the_padding_of_its_schema(name: str) -> None:
    assert TableId.in_catalog("S       ", name) == TableId("S", name)


def test_a_catalog_row_matches_a_table_exactly_or_without_final_blanks() -> None:
    plain, padded, other = TableId("S", "T"), TableId("S", "T  "), TableId("S", "U")
    assert plain.among({plain, padded}) == plain
    assert padded.among({plain, padded}) == padded
    assert padded.among({plain, other}) == plain
    assert plain.among({padded, other}) == padded
    assert TableId("S", " T").among({plain, TableId("R", " T")}) is None


def test_a_table_reads_as_schema_and_name() -> None:
    assert str(TableId("S", "T")) == "S.T"


def test_columns_are_found_by_their_exact_name() -> None:
    assert SCHEMA.names == ("ID", "NAME")
    assert SCHEMA.column("NAME") is NAME
    with pytest.raises(KeyError):
        SCHEMA.column("name")


@pytest.mark.parametrize(
    "changed",
    [
        replace(SCHEMA, key=("NAME",)),
        replace(SCHEMA, columns=(NAME, ID)),
        replace(SCHEMA, columns=(ID,)),
        replace(SCHEMA, columns=(ID, replace(NAME, length=11))),
        replace(SCHEMA, columns=(ID, replace(NAME, bit_data=True))),
        replace(SCHEMA, columns=(ID, replace(NAME, nullable=False))),
        replace(SCHEMA, columns=(ID, replace(NAME, scale=1))),
        replace(SCHEMA, columns=(ID, replace(NAME, type="CHARACTER"))),
        replace(SCHEMA, columns=(ID, replace(NAME, name="NAMES"))),
    ],
)
def test_the_fingerprint_changes_with_columns_types_and_key(changed: TableSchema) -> None:
    assert changed.fingerprint != SCHEMA.fingerprint


def test_the_fingerprint_ignores_unreplicated_columns_and_the_name() -> None:
    other = replace(SCHEMA, table=TableId("S", "U"), uncaptured_columns=("PHOTO",))
    assert other.fingerprint == SCHEMA.fingerprint


@pytest.mark.parametrize("names", [("ID", "NAME"), ("a b", "select", 'q"'), ("_X", "X_")])
def test_names_that_one_delta_table_can_have_pass(names: tuple[str, ...]) -> None:
    check_names(named(*names))


@pytest.mark.parametrize("names", [("Name", "ID", "NAME"), ("ä", "Ä")])
def test_names_that_differ_only_in_case_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match=f"'{names[0]}' and '{names[-1]}' differ only in case"):
        check_names(named(*names))


def test_names_with_the_providers_prefix_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'__commit_lsn' starts with '__'"):
        check_names(named("ID", "__commit_lsn"))


@pytest.mark.parametrize("name", ["_metadata", "_METADATA", "_row_dropped_"])
def test_names_of_columns_that_spark_and_delta_add_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"S\.T: column '{name}' .* Exclude it with column\.exclude\.list"):
        check_names(named("ID", name))
