"""Files are rewritten where it pays, and kept as long as a reader may ask for their version."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cdc.maintenance.file_layout import (
    SMALL_FILES,
    FileStatistics,
    clustering_columns,
    vacuum_hours,
)


def test_only_enough_small_files_are_compacted() -> None:
    assert not FileStatistics(1000, 10**12, SMALL_FILES - 1).needs_compaction
    assert FileStatistics(SMALL_FILES, 10**6, SMALL_FILES).needs_compaction
    assert FileStatistics(5, 10, 0, 1).needs_purge
    assert not FileStatistics(5, 10, 5, 0).needs_purge


def test_only_a_folder_with_more_files_than_a_version_needs_is_vacuumed() -> None:
    assert not FileStatistics(5, 10, vectors=2).needs_vacuum(7)
    assert FileStatistics(5, 10, vectors=2).needs_vacuum(8)


TYPES = {"A": "int", "B": "binary", "C": "string", "D": "decimal(5,2)", "E": "date", "F": "boolean", "G": "bigint"}


@pytest.mark.parametrize(
    ("key", "columns"),
    [("A", "A"), ("B", ""), ("BA", "A"), ("FC", "C"), ("GEDCA", "GEDC"), ("AX", "A"), ("", "")],
)
def test_a_state_is_clustered_by_at_most_four_key_columns(key: str, columns: str) -> None:
    assert clustering_columns(list(key), TYPES, [*TYPES]) == list(columns)


def test_a_state_is_not_clustered_by_columns_without_statistics() -> None:
    assert clustering_columns(["A", "G"], TYPES, ["A"]) == ["A"]


@pytest.mark.parametrize(
    ("retained_s", "oldest_s", "hours"),
    [(604_800, None, 168), (604_800, 3600, 168), (604_800, 604_801, 169), (3600.5, None, 2)],
)
def test_vacuum_keeps_what_the_table_or_a_manifest_names(retained_s: float, oldest_s: float | None, hours: int) -> None:
    assert vacuum_hours(retained_s, oldest_s) == hours
