"""What the capture agent writes for one writer at a time; `test_capture_soak.py` has many at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from support.captured import Source, opened, replay, running

from airflow_provider_db2cdc.errors import CaptureStoppedError
from airflow_provider_db2cdc.sandbox.capture.agent import CaptureAgent, CaptureOptions, await_captured
from airflow_provider_db2cdc.sandbox.capture.statement import execute
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.sandbox


@pytest.fixture
def source(sandbox: Sandbox) -> Iterator[Source]:
    with opened(sandbox) as source:
        yield source


def test_one_transaction_over_two_tables_is_the_worked_example(source: Source) -> None:
    a, b = source.table(), source.table()
    source.run(f"INSERT INTO {b} VALUES (7, 'seven')")
    source.commit()
    source.agent.round()
    source.run(f"INSERT INTO {a} VALUES (1, 'x')")
    source.run(f"UPDATE {a} SET V = 'y' WHERE ID = 1")
    source.run(f"DELETE FROM {b} WHERE ID = 7")
    source.commit()
    source.agent.round()
    changes_a, changes_b = a.changes(), b.changes()[1:]
    assert [(c.operation, *c.row) for c in changes_a] == [("I", 1, "x"), ("D", 1, "x"), ("I", 1, "y")]
    assert [(c.operation, *c.row) for c in changes_b] == [("D", 7, "seven")]
    (commit,) = {c.commit for c in changes_a + changes_b}
    intents = [c.intent for c in changes_a + changes_b]
    assert intents == sorted(set(intents))
    assert [source.registration(t.name, "CD_NEW_SYNCHPOINT")[0] for t in (a, b)] == [commit, commit]
    assert source.synchpoint()[0] >= commit
    uow = source.fetch(
        "SELECT IBMSNAP_AUTHID, IBMSNAP_REJ_CODE FROM ASNCDC.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ = ?",
        commit,
    )
    assert uow == [("DB2INST1", "0")]
    assert source.fetch("SELECT MAX_COMMITSEQ FROM ASNCDC.IBMSNAP_RESTART")[0][0] >= commit


def test_a_key_shift_comes_as_delete_and_insert_per_row_in_row_order(source: Source) -> None:
    table = source.table()
    source.run(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    source.commit()
    source.run(f"UPDATE {table} SET ID = ID + 1")
    source.commit()
    assert table.captured()[3:] == [
        *(("D", 1, "a"), ("I", 2, "a"), ("D", 2, "b"), ("I", 3, "b"), ("D", 3, "c"), ("I", 4, "c")),
    ]
    assert replay(table.changes()) == table.rows()


def test_all_changes_of_a_row_in_one_transaction_appear(source: Source) -> None:
    table = source.table()
    source.run(f"INSERT INTO {table} VALUES (1, 'a')")
    source.run(f"DELETE FROM {table}")
    source.run(f"INSERT INTO {table} VALUES (1, 'a')")
    source.run(f"UPDATE {table} SET V = V")
    source.commit()
    assert [operation for operation, *_ in table.captured()] == ["I", "D", "I", "D", "I"]


def test_updates_may_be_single_rows_with_the_after_image(source: Source) -> None:
    table = source.table(update_as="U")
    source.run(f"INSERT INTO {table} VALUES (1, 'a')")
    source.run(f"UPDATE {table} SET V = 'b', ID = 2")
    source.run(f"DELETE FROM {table}")
    source.commit()
    assert table.captured() == [("I", 1, "a"), ("U", 2, "b"), ("D", 2, "b")]
    assert source.registration(table.name, "CHG_UPD_TO_DEL_INS") == ("N",)


@pytest.mark.parametrize(
    ("update_as", "updated"),
    [("U", [("U", 2, 1, "b", "a")]), ("DI", [("D", 1, 1, "a", "a"), ("I", 2, None, "b", None)])],
)
def test_before_images_are_next_to_their_columns(
    source: Source, update_as: str, updated: list[tuple[Any, ...]]
) -> None:
    table = source.table(update_as=update_as, before_img_prefix="X")
    source.run(f"INSERT INTO {table} VALUES (1, 'a')")
    source.run(f"UPDATE {table} SET V = 'b', ID = 2")
    source.run(f"DELETE FROM {table}")
    source.commit()
    assert table.captured() == [("I", 1, None, "a", None), *updated, ("D", 2, 2, "b", "b")]
    assert source.registration(table.name, "BEFORE_IMG_PREFIX") == ("X",)


def test_every_captured_type_keeps_its_value(source: Source) -> None:
    values = (
        "-32768, 2147483647, -9223372036854775808, 12345678901234567890123456.78901, CAST(1.5 AS REAL), 1E300, 'c ', "
        "'', X'00FF10', DATE('0001-01-01'), TIME('23:59:59'), TIMESTAMP('9999-12-31 23:59:59.999999'), 'long'"
    )
    table = source.table(
        "A SMALLINT, B INTEGER, C BIGINT, D DECIMAL(31,5), E REAL, F DOUBLE, G CHAR(3), H VARCHAR(9), "
        "I VARCHAR(9) FOR BIT DATA, J DATE, K TIME, L TIMESTAMP, M LONG VARCHAR"
    )
    source.run(f"INSERT INTO {table} VALUES ({values})")
    source.run(f"INSERT INTO {table} (A) VALUES (NULL)")
    source.commit()
    stored = source.fetch(f"SELECT * FROM {table} ORDER BY A NULLS LAST")
    assert table.captured() == [("I", *row) for row in stored]


def test_rolled_back_work_never_appears(source: Source) -> None:
    table = source.table()
    source.run(f"INSERT INTO {table} VALUES (1, 'kept')")
    source.commit()
    source.run(f"INSERT INTO {table} VALUES (2, 'undone')")
    source.agent.round()
    source.connection.rollback()
    assert table.captured() == [("I", 1, "kept")]


def test_work_up_to_a_savepoint_is_all_that_remains_of_a_partial_rollback(source: Source) -> None:
    table = source.table()
    source.run(f"INSERT INTO {table} VALUES (1, 'kept')")
    source.run("SAVEPOINT S ON ROLLBACK RETAIN CURSORS")
    source.run(f"INSERT INTO {table} VALUES (2, 'undone')")
    source.agent.round()
    source.run("ROLLBACK TO SAVEPOINT S")
    source.commit()
    assert table.captured() == [("I", 1, "kept")]


def test_open_work_is_not_waited_for_and_not_captured(source: Source, sandbox: Sandbox) -> None:
    table = source.table()
    with closing(sandbox.connect()) as other:
        execute(other, f"INSERT INTO {table} VALUES (1, 'open')")
        source.run(f"INSERT INTO {table} VALUES (2, 'committed')")
        source.commit()
        started = time.monotonic()
        assert table.captured() == [("I", 2, "committed")]
        assert time.monotonic() - started < 5, "the round waited for the open transaction"
        other.commit()
        assert table.captured() == [("I", 2, "committed"), ("I", 1, "open")]
        first, second = table.changes()
        assert first.intent > second.intent, "the long transaction changed its row first"


def test_an_idle_agent_moves_synchpoint_and_synchtime_but_no_registration(source: Source) -> None:
    table = source.table()
    source.agent.round()
    points = [source.synchpoint()]
    for _ in range(3):
        time.sleep(0.01)
        assert source.agent.round() == 0
        points.append(source.synchpoint())
    assert [point for point, _ in points] == sorted({point for point, _ in points})
    assert [at for _, at in points] == sorted({at for _, at in points})
    assert source.registration(table.name, "CD_NEW_SYNCHPOINT") == (None,)


def test_a_round_has_a_limit_and_cuts_no_transaction(source: Source) -> None:
    table = source.table()
    for number in range(6):
        source.run(f"INSERT INTO {table} VALUES ({2 * number}, 'a'), ({2 * number + 1}, 'b')")
        source.commit()
    written, points = list[int](), list[Any]()
    while sum(written) < 12:
        written.append(source.agent.round(max_rows=3))
        points.append((source.synchpoint(), len(table.changes())))
    assert written == [4, 4, 4]
    times = [at for (_, at), _ in points]
    markers = source.fetch(
        f"SELECT DISTINCT U.IBMSNAP_LOGMARKER FROM ASNCDC.IBMSNAP_UOW U JOIN {table.change_table} C "
        "ON C.IBMSNAP_COMMITSEQ = U.IBMSNAP_COMMITSEQ ORDER BY 1"
    )
    assert times[0] < markers[2][0], "SYNCHTIME has passed a commit that was left for the next round"
    assert times[1] < markers[4][0]
    assert points == sorted(points)


def test_a_huge_transaction_is_captured_in_one_round(source: Source) -> None:
    table = source.table()
    source.run(
        f"INSERT INTO {table} SELECT ROW_NUMBER() OVER (), 'x' FROM SYS.SYSCOLUMNS A, SYS.SYSTABLES B "
        "FETCH FIRST 6000 ROWS ONLY"
    )
    source.commit()
    rows = sum(table.rows().values())
    assert rows == 6_000
    assert source.agent.round(max_rows=100) == rows
    assert len({change.commit for change in table.changes()}) == 1
    assert replay(table.changes()) == table.rows()


@pytest.mark.parametrize("state", ["I", "S"])
def test_a_registration_that_is_not_active_captures_nothing_until_it_is(source: Source, state: str) -> None:
    table = source.table(state=state)
    source.run(f"INSERT INTO {table} VALUES (1, 'inactive')")
    source.commit()
    assert table.captured() == []
    source.run(f"INSERT INTO {table} VALUES (2, 'not yet looked at')")
    source.commit()
    source.run("UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'A' WHERE SOURCE_OWNER = ?", table.name[0])
    source.commit()
    source.run(f"INSERT INTO {table} VALUES (3, 'active')")
    source.commit()
    assert table.captured() == [("I", 3, "active")]


def test_setting_an_active_registration_active_loses_nothing(source: Source) -> None:
    table = source.table()
    source.run(f"INSERT INTO {table} VALUES (1, 'x')")
    source.run("UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'A' WHERE SOURCE_OWNER = ?", table.name[0])
    source.commit()
    assert table.captured() == [("I", 1, "x")]


def test_a_transaction_that_touched_no_active_table_has_no_uow_row(source: Source) -> None:
    table = source.table(state="I")
    source.agent.round()
    before = source.fetch("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_UOW")
    source.run(f"INSERT INTO {table} VALUES (1, 'inactive')")
    source.commit()
    source.agent.round()
    assert source.fetch("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_UOW") == before


def test_a_failed_round_leaves_nothing_and_is_made_good(source: Source, sandbox: Sandbox) -> None:
    table = source.table()
    source.run(f"INSERT INTO {table} VALUES (1, 'x')")
    source.run(f"ALTER TABLE {table.change_table} ADD CONSTRAINT BROKEN CHECK (ID > 1)")
    source.commit()
    before = source.synchpoint()
    with pytest.raises(Exception, match="BROKEN"):
        source.agent.round()
    assert (table.changes(), source.synchpoint()) == ([], before)
    source.run(f"ALTER TABLE {table.change_table} DROP CONSTRAINT BROKEN")
    source.commit()
    assert table.captured() == [("I", 1, "x")]


def test_the_awaited_synchpoint_covers_all_earlier_commits(source: Source, sandbox: Sandbox) -> None:
    table = source.table()
    with running(sandbox):
        for number in range(5):
            source.run(f"INSERT INTO {table} VALUES ({number}, 'x')")
            source.commit()
            point = await_captured(source.connection, 20)
            assert [change.row[0] for change in table.changes() if change.commit <= point] == list(range(number + 1))


def test_waiting_for_an_agent_that_does_not_run_ends_in_time_and_says_so(source: Source) -> None:
    started = time.monotonic()
    with pytest.raises(CaptureStoppedError, match=r"SANDBOX\.CONTROL"):
        await_captured(source.connection, 0.2)
    assert time.monotonic() - started < 5


def test_a_running_agent_survives_the_loss_of_its_connection(source: Source, sandbox: Sandbox) -> None:
    table = source.table()
    with running(sandbox) as agent:
        await_captured(source.connection, 20)
        agent.close()
        source.run(f"INSERT INTO {table} VALUES (1, 'x')")
        source.commit()
        await_captured(source.connection, 20)
    assert [change.row for change in table.changes()] == [(1, "x")]


def test_an_option_replaces_the_interval_of_the_control_table(source: Source) -> None:
    source.run("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET COMMIT_INTERVAL = 3")
    source.commit()
    with closing(CaptureAgent(source.sandbox.dsn(), CaptureOptions(commit_interval_s=None))) as agent:
        assert agent._interval_s() == 3.0
    source.run("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET COMMIT_INTERVAL = 1")
    source.commit()
    assert source.agent._interval_s() == 1.0
