"""Progress of a snapshot, as people see it."""

from dataclasses import replace

from airflow_provider_db2cdc.cdc.snapshot.progress import describe_applied, describe_tables, progress
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot, with_chunks, with_failure, with_stop
from airflow_provider_db2cdc.cdc.table import TableId

A, B, C = (TableId("S", name) for name in "ABC")


def cut(table: TableId, done: int) -> TableSnapshot:
    """Return a table snapshot of three chunks."""
    return replace(
        with_chunks(TableSnapshot(table), [["1"], ["2"]], "f"), published_chunks=done, rows_published=done * 10
    )


def shown(*parts: TableSnapshot) -> tuple[int, int | None, int]:
    one = progress(Snapshot("1", "incremental", parts))
    return one.done, one.chunks, one.rows


def test_chunks_are_known_once_all_tables_have_bounds() -> None:
    assert shown(cut(A, 1), TableSnapshot(B)) == (1, None, 10)
    assert shown(cut(A, 1), cut(B, 0)) == (1, 6, 10)


def test_stopped_tables_count_as_complete() -> None:
    assert shown(with_stop(cut(A, 1), "asked for"), cut(B, 3), with_stop(TableSnapshot(C), "asked for")) == (4, 4, 40)


def test_remaining_time_follows_from_the_time_so_far() -> None:
    one = progress(Snapshot("1", "incremental", (cut(A, 2), cut(B, 0))))
    assert (one.remaining_s, one.at_pace(1, 10.0).remaining_s, one.at_pace(0, 10.0).remaining_s) == (None, 40, 20)
    assert str(one.at_pace(1, 10.0)).endswith("2 of 6 chunks, 20 rows, about 40 s more")


def test_line_shows_the_known_progress() -> None:
    one = Snapshot("1", "incremental", (replace(cut(A, 3), status="completed"), cut(B, 1), TableSnapshot(C)))
    assert str(progress(one)) == ("snapshot 1 (incremental) running: 1 of 3 tables, 4 of more than 6 chunks, 40 rows")
    assert str(progress(replace(one, tables=(TableSnapshot(A), TableSnapshot(B))))).endswith(
        ": 0 of 2 tables, 0 of ? chunks, 0 rows"
    )
    assert str(progress(replace(one, tables=(TableSnapshot(A),)))).endswith(": 0 of ? chunks, 0 rows")


def test_remaining_time_is_unknown_until_all_chunks_are_known() -> None:
    assert progress(Snapshot("1", "incremental", (cut(A, 1),))).at_pace(1, 10.0).remaining_s is None
    assert progress(Snapshot("1", "incremental", (cut(A, 1), TableSnapshot(B)))).at_pace(0, 10.0).remaining_s is None
    over = replace(cut(A, 3), status="completed")
    assert progress(Snapshot("1", "incremental", (over,), status="completed")).at_pace(0, 10.0).remaining_s is None


def test_failed_table_has_no_remaining_chunks() -> None:
    broken, never = with_failure(cut(A, 1), "no grant", tries=1), with_failure(TableSnapshot(A), "no grant", tries=1)
    assert progress(Snapshot("1", "incremental", (broken, cut(B, 1)))).at_pace(1, 10.0).remaining_s == 20
    assert shown(never, cut(B, 3)) == (3, 3, 30)


def test_table_that_was_stopped_before_it_began_has_no_chunks() -> None:
    one = progress(Snapshot("1", "incremental", (with_stop(TableSnapshot(A), "by hand"), cut(B, 1))))
    assert describe_tables(one)[0][2] == "0 of 0"


def test_a_batch_describes_its_applied_tables_and_the_remaining_time() -> None:
    assert describe_applied(3, 30, 12.4) == "3 of 30 tables, about 112 s more"
    assert describe_applied(30, 30, 124.0) == "30 of 30 tables"
