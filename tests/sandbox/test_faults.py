"""What can go wrong with capture, switched on by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.captured import Source, Table, opened, running

from airflow_provider_db2cdc.errors import CaptureStoppedError, RegistrationError
from airflow_provider_db2cdc.sandbox.capture import control_tables, faults
from airflow_provider_db2cdc.sandbox.capture.agent import CaptureAgent, await_captured
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.sandbox


@pytest.fixture
def source(sandbox: Sandbox) -> Iterator[Source]:
    with opened(sandbox) as source:
        yield source
        for switch_off in (faults.resume, lambda connection: faults.lag(connection, 0)):
            switch_off(source.connection)
        faults.missing_uow(source.connection, on=False)


def insert(table: Table, *numbers: int) -> None:
    """Insert rows, each in a transaction and a round of its own."""
    for number in numbers:
        table.source.run(f"INSERT INTO {table} VALUES ({number}, 'x')")
        table.source.commit()
        table.source.agent.round()


def ids(table: Table) -> list[int]:
    return [change.row[0] for change in table.changes()]


def uow_of(source: Source, commits: list[bytes]) -> list[bytes]:
    rows = source.fetch("SELECT IBMSNAP_COMMITSEQ FROM ASNCDC.IBMSNAP_UOW ORDER BY 1")
    return [bytes(row[0]) for row in rows if bytes(row[0]) in commits]


def test_a_paused_agent_stands_still_and_resumes_without_a_loss(source: Source, sandbox: Sandbox) -> None:
    table = source.table()
    with running(sandbox):
        await_captured(source.connection, 20)
        faults.pause(source.connection)
        before = source.synchpoint()
        source.run(f"INSERT INTO {table} VALUES (1, 'x')")
        source.commit()
        with pytest.raises(CaptureStoppedError, match="SANDBOX"):
            await_captured(source.connection, 0.3)
        assert (ids(table), source.synchpoint()) == ([], before)
        faults.resume(source.connection)
        await_captured(source.connection, 20)
        assert ids(table) == [1]


def test_an_open_transaction_may_outlive_the_agent(source: Source, sandbox: Sandbox) -> None:
    table = source.table()
    source.run(f"INSERT INTO {table} VALUES (1, 'x')")
    source.agent.round()
    source.agent.close()
    source.run(f"INSERT INTO {table} VALUES (2, 'x')")
    source.commit()
    CaptureAgent(sandbox.dsn()).round()
    assert ids(table) == [1, 2]
    assert len({change.commit for change in table.changes()}) == 1


def test_the_synchtime_of_a_lagging_agent_shows_its_lag(source: Source) -> None:
    table = source.table()
    insert(table, 1)
    faults.lag(source.connection, 60)
    reached = source.synchpoint()[1]
    insert(table, 2)
    assert ids(table) == [1]
    assert source.synchpoint()[1] == reached
    faults.lag(source.connection, 0.2)
    time.sleep(0.25)
    source.agent.round()
    ((now,),) = source.fetch("VALUES CURRENT_TIMESTAMP")
    assert ids(table) == [1, 2]
    assert 0.19 <= (now - source.synchpoint()[1]).total_seconds() < 30
    faults.lag(source.connection, 0)
    insert(table, 3)
    assert ids(table) == [1, 2, 3]


def test_uow_rows_may_be_missing(source: Source) -> None:
    table = source.table()
    insert(table, 1)
    faults.missing_uow(source.connection)
    insert(table, 2)
    faults.missing_uow(source.connection, on=False)
    insert(table, 3)
    commits = [change.commit for change in table.changes()]
    assert ids(table) == [1, 2, 3]
    assert uow_of(source, commits) == [commits[0], commits[2]]


def test_a_prune_takes_a_prefix_away_and_moves_the_old_synchpoint(source: Source) -> None:
    table, other = source.table(), source.table()
    insert(table, 1, 2, 3)
    commits = [change.commit for change in table.changes()]
    pruned = faults.prune(source.connection, upto=commits[1])
    assert pruned.upto == commits[1]
    assert pruned.rows >= 2
    assert ids(table) == [3]
    assert uow_of(source, commits) == [commits[2]]
    assert source.registration(table.name, "CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT") == (commits[1], commits[2])
    assert source.registration(other.name, "CD_OLD_SYNCHPOINT") == (commits[1],)


def test_an_older_prune_does_not_move_the_old_synchpoint_back(source: Source) -> None:
    table = source.table()
    insert(table, 1, 2)
    commits = [change.commit for change in table.changes()]
    faults.prune(source.connection, upto=commits[1])
    faults.prune(source.connection, upto=commits[0])
    assert source.registration(table.name, "CD_OLD_SYNCHPOINT") == (commits[1],)


def test_a_retention_prune_spares_what_is_younger(source: Source) -> None:
    table = source.table()
    insert(table, 1, 2)
    assert faults.prune(source.connection, retention_s=3600).upto is None
    first, _ = table.changes()
    uow, of_first = "ASNCDC.IBMSNAP_UOW", "WHERE IBMSNAP_COMMITSEQ = ?"
    ((marker,),) = source.fetch(f"SELECT IBMSNAP_LOGMARKER FROM {uow} {of_first}", first.commit)
    # They are hours apart, so a slow machine cannot confuse the two before the prune.
    source.run(f"UPDATE {uow} SET IBMSNAP_LOGMARKER = ? {of_first}", marker - timedelta(hours=2), first.commit)
    source.commit()
    assert faults.prune(source.connection, retention_s=3600).upto == first.commit
    assert ids(table) == [2]


def test_a_prune_of_everything_leaves_empty_change_tables(source: Source) -> None:
    table = source.table()
    insert(table, 1, 2)
    pruned = faults.prune(source.connection)
    assert table.changes() == []
    assert source.registration(table.name, "CD_OLD_SYNCHPOINT") == (pruned.upto,)


def test_a_cold_start_empties_all_and_continues_at_a_higher_lsn(source: Source) -> None:
    table = source.table()
    insert(table, 1)
    last = source.synchpoint()[0]
    first_seq = source.fetch("SELECT CAPTURE_FIRST_SEQ FROM ASNCDC.IBMSNAP_RESTART")
    source.run(f"INSERT INTO {table} VALUES (2, 'lost')")
    source.commit()
    faults.cold_start(source.connection)
    assert table.changes() == []
    assert source.fetch("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_UOW") == [(0,)]
    assert source.registration(table.name, "CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT, STATE") == (None, None, "A")
    restart = source.fetch("SELECT CAPTURE_FIRST_SEQ, MAX_COMMITSEQ FROM ASNCDC.IBMSNAP_RESTART")
    assert restart[0][0] > first_seq[0][0]
    assert restart[0][0] > last
    insert(table, 3)
    assert ids(table) == [3]
    assert table.changes()[0].commit > restart[0][0]


@pytest.mark.parametrize("state", ["S", "I"])
def test_a_table_whose_state_is_not_active_stops_and_the_others_continue(source: Source, state: str) -> None:
    table, other = source.table(), source.table()
    insert(table, 1)
    faults.set_state(source.connection, *table.name, state)
    insert(table, 2)
    insert(other, 1)
    assert (ids(table), ids(other)) == ([1], [1])
    assert source.registration(table.name, "STATE, STATE_INFO") == (state, "ASN0005E" if state == "S" else None)
    faults.set_state(source.connection, *table.name, "A")
    insert(table, 3)
    assert ids(table) == [1, 3]


def test_a_table_registered_again_has_a_new_change_table_of_the_same_form(source: Source) -> None:
    table = source.table(update_as="U", before_img_prefix="X", columns=["ID"])
    insert(table, 1)
    faults.reregister(source.connection, *table.name)
    assert table.changes() == []
    insert(table, 2)
    assert [(change.operation, *change.row) for change in table.changes()] == [("I", 2, None)]
    assert source.registration(table.name, "CHG_UPD_TO_DEL_INS, BEFORE_IMG_PREFIX, CD_NEW_SYNCHPOINT") == (
        *("N", "X"),
        table.changes()[0].commit,
    )


def test_a_fault_of_a_table_that_is_not_registered_is_refused(source: Source) -> None:
    with pytest.raises(RegistrationError, match=r"NO\.SUCH"):
        faults.set_state(source.connection, "NO", "SUCH", "S")


@pytest.mark.long
def test_narrow_lsns_ascend_over_restarts_of_agent_and_sandbox(tmp_path: Path, sandbox_jars: str) -> None:
    options: dict[str, Any] = {"lsn_bytes": 10, "update_as": "U", "before_images": True}
    for turn in range(2):
        with (
            Sandbox.start(tmp_path, jars=sandbox_jars, commit_interval_s=0.05, **options) as sandbox,
            opened(sandbox, **options) as source,
        ):
            table = Table(source, ("S", "T"))
            if turn == 0:
                source.run("CREATE TABLE S.T (ID INTEGER NOT NULL PRIMARY KEY)")
                source.commit()
                control_tables.addtable(source.connection, *table.name)
            source.run(f"INSERT INTO {table} VALUES ({turn})")
            source.commit()
            point = await_captured(source.connection, 30)
            changes = table.changes()
            assert changes[-1].commit <= point
    assert [change.row for change in changes] == [(0, None), (1, None)]
    lsns = [lsn for change in changes for lsn in (change.commit, change.intent)]
    assert {len(lsn) for lsn in lsns} == {10}
    assert changes[0].commit < changes[1].commit
    assert changes[0].intent < changes[1].intent
