"""The agent under many writers and a reader at once: the promises that a consumer of change tables builds on.

Writers take a ticket from one row (`UPDATE COUNTER`), so that the tickets of committed transactions are 1, 2, 3, ... in
commit order, and write it with their changes; some roll back, some are long, some are large. A committed reader polls.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from support.captured import Change, Source, Table, opened, replay

from airflow_provider_db2cdc.sandbox.capture.agent import CaptureAgent, await_captured
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute, fetch
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.sandbox

_SOAK_S, _LONGEST_S = 3.0, 60.0
_ROUNDS, _COMMITS = 10, 30
_WRITERS = 5
_LARGE = 400


@dataclass(frozen=True)
class Poll:
    """What one look of the reader saw: the synchpoint first, then the tickets in the change table up to it."""

    synchpoint: bytes
    synchtime: datetime
    tickets: Counter[int]
    parts: int


@dataclass
class Soak:
    """What happened."""

    committed: dict[int, datetime] = field(default_factory=dict)
    rolled_back: int = 0
    polls: list[Poll] = field(default_factory=list)
    rounds: int = 0
    errors: list[BaseException] = field(default_factory=list)
    changes: dict[str, list[Change]] = field(default_factory=dict)
    rows: dict[str, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    uow: list[tuple[Any, ...]] = field(default_factory=list)
    parts: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Tables:
    counter: Table
    ledger: Table
    items: tuple[Table, ...]


class _Run:
    """Threads that run until the time is up; the first error of any is kept."""

    def __init__(self, sandbox: Sandbox, tables: _Tables, soak: Soak) -> None:
        self.sandbox, self.tables, self.soak = sandbox, tables, soak
        self.started_at = time.monotonic()
        self.stop_capture = threading.Event()

    def writing(self) -> bool:
        """Until the time is up, on a slow machine until there is something to look at."""
        over = time.monotonic() - self.started_at
        enough = (
            self.soak.rounds >= _ROUNDS and len(self.soak.committed) >= _COMMITS and len(self.soak.polls) >= _ROUNDS
        )
        return not self.soak.errors and over < (_SOAK_S if enough else _LONGEST_S)

    def thread(self, target: Any, *arguments: Any) -> threading.Thread:
        def kept(*_: Any) -> None:
            try:
                target(*arguments)
            except BaseException as error:
                self.soak.errors.append(error)
                raise

        thread = threading.Thread(target=kept, daemon=True)
        thread.start()
        return thread

    def write(self, number: int) -> None:
        """Run transactions of random shape."""
        chance = random.Random(number)
        connection = self.sandbox.connect()
        while self.writing():
            self._transaction(connection, chance, number)
        connection.close()

    def _transaction(self, connection: Connection, chance: random.Random, number: int) -> None:
        tables, kind = self.tables, chance.choice(["small", "small", "small", "large", "slow", "undone", "ticketless"])
        self._change_items(connection, chance, number, steps=chance.randint(1, 4))
        if kind == "slow":
            time.sleep(0.1)
        if kind == "ticketless":
            connection.commit()
            return
        execute(connection, f"UPDATE {tables.counter} SET N = N + 1")
        ticket = int(fetch(connection, f"SELECT N FROM {tables.counter}")[0][0])
        parts = _LARGE if kind == "large" else chance.randint(1, 3)
        execute(
            connection,
            f"INSERT INTO {tables.ledger} SELECT {ticket}, P, {parts} FROM SEQUENCE.NUMBERS WHERE P <= {parts}",
        )
        self._change_items(connection, chance, number, steps=1)
        if kind == "undone":
            connection.rollback()
            self.soak.rolled_back += 1
            return
        connection.commit()
        ((now,),) = fetch(connection, "VALUES CURRENT_TIMESTAMP")
        self.soak.committed[ticket] = now
        self.soak.parts[ticket] = parts

    def _change_items(self, connection: Connection, chance: random.Random, number: int, steps: int) -> None:
        """Change rows of this writer's own table.

        On a shared one the writers would soon wait for each other in a ring.
        """
        item = self.tables.items[number]
        for _ in range(steps):
            at = chance.randint(0, 30)
            ((free,),) = fetch(connection, f"SELECT COALESCE(MAX(ID), 0) + 1 FROM {item}")
            match chance.choice(["insert", "insert", "update", "key", "shift", "delete"]):
                case "insert":
                    execute(connection, f"INSERT INTO {item} VALUES (?, ?)", free, f"v{chance.random()}")
                case "update":
                    execute(connection, f"UPDATE {item} SET V = ? WHERE ID = ?", f"v{chance.random()}", at)
                case "key":
                    execute(connection, f"UPDATE {item} SET ID = ? WHERE ID = ?", free, at)
                case "shift":
                    execute(connection, f"UPDATE {item} SET ID = ID + 1 WHERE ID >= ?", at)
                case "delete":
                    execute(connection, f"DELETE FROM {item} WHERE ID = ?", at)

    def capture(self) -> None:
        """Run rounds without a pause."""
        agent = CaptureAgent(self.sandbox.dsn())
        while not self.stop_capture.is_set():
            agent.round(max_rows=500)
            self.soak.rounds += 1
        agent.close()

    def read(self) -> None:
        """Poll as a consumer does: the synchpoint first, in a transaction of its own, then the changes up to it."""
        connection = self.sandbox.connect()
        change_table = self.tables.ledger.change_table
        while self.writing():
            ((point, at),) = fetch(
                connection, "SELECT SYNCHPOINT, SYNCHTIME FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'"
            )
            connection.commit()
            rows = fetch(connection, f"SELECT N, P FROM {change_table} WHERE IBMSNAP_COMMITSEQ <= ?", point)
            connection.commit()
            self.soak.polls.append(Poll(bytes(point), at, Counter(ticket for ticket, _ in rows), len(rows)))
        connection.close()


@pytest.fixture(scope="session")
def soak(sandbox: Sandbox) -> Iterator[Soak]:
    """Several seconds of writers, reader and agent, and what is left of it."""
    result = Soak()
    with opened(sandbox) as source:
        tables = _prepare(source)
        run = _Run(sandbox, tables, result)
        capture = run.thread(run.capture)
        threads = [run.thread(run.read), *(run.thread(run.write, number) for number in range(_WRITERS))]
        for thread in threads:
            thread.join(_LONGEST_S + 30)
        await_captured(source.connection, 60)
        run.stop_capture.set()
        capture.join(60)
        assert result.errors == []
        assert not any(thread.is_alive() for thread in [*threads, capture])
        named = {"counter": tables.counter, "ledger": tables.ledger}
        for name, table in {**named, **{str(table): table for table in tables.items}}.items():
            result.changes[name], result.rows[name] = table.changes(), table.rows()
        result.uow = source.fetch(
            "SELECT IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER FROM ASNCDC.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ >= ? ORDER BY 1",
            result.changes["counter"][0].commit,
        )
        yield result
        source.run("DROP TABLE SEQUENCE.NUMBERS")
        source.commit()


def _prepare(source: Source) -> _Tables:
    source.run("CREATE SCHEMA SEQUENCE")
    source.run("CREATE TABLE SEQUENCE.NUMBERS (P INTEGER NOT NULL PRIMARY KEY)")
    source.run(
        "INSERT INTO SEQUENCE.NUMBERS SELECT ROW_NUMBER() OVER () FROM SYS.SYSCOLUMNS A, SYS.SYSTABLES B "
        f"FETCH FIRST {_LARGE} ROWS ONLY"
    )
    tables = _Tables(
        source.table("N INTEGER NOT NULL"),
        source.table("N INTEGER NOT NULL, P INTEGER NOT NULL, PARTS INTEGER NOT NULL, PRIMARY KEY (N, P)"),
        tuple(source.table("ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(40)") for _ in range(_WRITERS)),
    )
    source.run(f"INSERT INTO {tables.counter} VALUES 0")
    source.commit()
    return tables


def test_the_soak_was_one(soak: Soak) -> None:
    assert len(soak.committed) >= _COMMITS
    assert soak.rounds >= _ROUNDS
    assert len(soak.polls) >= _ROUNDS
    assert soak.rolled_back > 0
    assert any(parts == _LARGE for parts in soak.parts.values())


def test_commits_come_in_the_order_in_which_they_were_made(soak: Soak) -> None:
    """Invariant 1: one COMMITSEQ per transaction, ascending over all tables in commit order."""
    commits: dict[int, set[bytes]] = {}
    for change in soak.changes["ledger"]:
        commits.setdefault(change.row[0], set()).add(change.commit)
    assert all(len(found) == 1 for found in commits.values())
    in_log_order = sorted(commits, key=lambda ticket: min(commits[ticket]))
    assert in_log_order == list(range(1, len(soak.committed) + 1))
    counted = [change.row[0] for change in soak.changes["counter"] if change.operation == "I"]
    assert counted == list(range(len(soak.committed) + 1))


def test_intents_of_a_transaction_ascend_in_the_order_of_its_statements(soak: Soak) -> None:
    """Invariants 2 and 3, over all tables."""
    everything = [change for changes in soak.changes.values() for change in changes]
    assert len({change.intent for change in everything}) == len(everything)
    ticket_of = {change.commit: change.row[0] for change in soak.changes["ledger"]}
    for commit, ticket in ticket_of.items():
        counted = [c.intent for c in soak.changes["counter"] if c.commit == commit]
        written = [c.intent for c in soak.changes["ledger"] if c.commit == commit]
        assert len(counted) == 2, ticket
        assert max(counted) < min(written)


def test_a_long_transaction_holds_intents_below_those_of_earlier_commits(soak: Soak) -> None:
    intents: dict[bytes, tuple[bytes, bytes]] = {}
    for change in (change for changes in soak.changes.values() for change in changes):
        low, high = intents.get(change.commit, (change.intent, change.intent))
        intents[change.commit] = (min(low, change.intent), max(high, change.intent))
    spans = [intents[commit] for commit in sorted(intents)]
    assert any(later[0] < earlier[1] for earlier, later in pairwise(spans))


def test_replaying_the_changes_gives_the_tables(soak: Soak) -> None:
    """Nothing lost, nothing twice, nothing of what was rolled back (invariant 8)."""
    for name, changes in soak.changes.items():
        assert replay(changes) == soak.rows[name], name


def test_no_image_is_deleted_before_it_was_there(soak: Soak) -> None:
    for name, changes in soak.changes.items():
        rows: Counter[tuple[Any, ...]] = Counter()
        for change in changes:
            rows[change.row] += 1 if change.operation == "I" else -1
            assert rows[change.row] >= 0, (name, change.commit, change.intent)


def test_a_reader_sees_whole_transactions_and_no_gap_below_the_synchpoint(soak: Soak) -> None:
    """Invariants 4, 5 and 6: what is at or below a synchpoint is complete when the synchpoint is seen."""
    for poll in soak.polls:
        seen = sorted(poll.tickets)
        assert seen == list(range(1, len(seen) + 1))
        for ticket in seen:
            assert poll.tickets[ticket] == soak.parts[ticket], ticket


def test_what_a_reader_has_seen_below_a_synchpoint_never_changes(soak: Soak) -> None:
    for poll in soak.polls:
        later = [change for change in soak.changes["ledger"] if change.commit <= poll.synchpoint]
        assert Counter(change.row[0] for change in later) == poll.tickets


def test_synchpoint_and_synchtime_only_move_forward(soak: Soak) -> None:
    for earlier, later in pairwise(soak.polls):
        assert earlier.synchpoint <= later.synchpoint
        assert earlier.synchtime <= later.synchtime


def test_what_was_committed_before_synchtime_is_captured(soak: Soak) -> None:
    """Invariant 7: a change committed before the source's clock said t is there once SYNCHTIME is greater than t."""
    for poll in soak.polls:
        due = {ticket for ticket, at in soak.committed.items() if at < poll.synchtime}
        assert due <= set(poll.tickets)


def test_each_transaction_has_one_uow_row_with_times_in_commit_order(soak: Soak) -> None:
    commits = {change.commit for changes in soak.changes.values() for change in changes}
    assert [bytes(row[0]) for row in soak.uow] == sorted(commits)
    times = [row[1] for row in soak.uow]
    assert times == sorted(times)
    ticket_of = {change.commit: change.row[0] for change in soak.changes["ledger"]}
    for commit, at in soak.uow:
        if ticket := ticket_of.get(bytes(commit)):
            assert at <= soak.committed[ticket].replace(microsecond=soak.committed[ticket].microsecond + 999)
