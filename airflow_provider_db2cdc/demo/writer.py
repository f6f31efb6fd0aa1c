"""The writers: clerks of the shop, each on a separate connection. They change it continuously."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count

from airflow_provider_db2cdc.demo import shop
from airflow_provider_db2cdc.demo.shop import CUSTOMERS, LINES, ORDERS, Orders
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute, fetch

log = logging.getLogger(__name__)

ROLLBACK_RATE = 0.08
RECONNECT_S = 1.0
LOST_IN_A_ROW = 30
"""Transactions lost in a row after which a clerk gives up; a restart of the database costs a few."""

JOIN_TIMEOUT_S = 60.0


@dataclass
class Desk:
    """One clerk's customers and orders, and the open transaction with them."""

    connection: Connection
    rng: random.Random
    new_keys: Iterator[int]
    customers: list[int]
    orders: Orders
    done: Counter[str] = field(default_factory=Counter)

    def draft(self) -> Desk:
        """Return a copy to work on, thrown away when the transaction is rolled back."""
        return Desk(self.connection, self.rng, self.new_keys, list(self.customers), dict(self.orders))

    def run(self, kind: str, sql: str, *values: object) -> None:
        """Run a statement and count the rows that it touched."""
        self.done[kind] += execute(self.connection, sql, *values)

    def any_order(self) -> int:
        """Return the key of some order."""
        return self.rng.choice(list(self.orders))


def take_order(desk: Desk) -> None:
    """Insert an order with its lines, and change its customer: all three tables in one transaction."""
    key, customer = next(desk.new_keys), desk.rng.choice(desk.customers)
    numbers = tuple(range(1, desk.rng.randint(1, 5) + 1))
    row = shop.order(desk.rng, key, customer)
    desk.done["inserted"] += shop.insert(desk.connection, ORDERS, [row])
    desk.done["inserted"] += shop.insert(desk.connection, LINES, shop.lines(desk.rng, key, numbers))
    change = f"UPDATE {CUSTOMERS} SET CREDIT = COALESCE(CREDIT, 0) - ?, CHANGED_AT = ? WHERE CUSTOMER_ID = ?"
    desk.run("updated", change, row[3], shop.moment(desk.rng), customer)
    desk.orders[key] = numbers


def welcome_customer(desk: Desk) -> None:
    """Insert a customer."""
    key = next(desk.new_keys)
    desk.done["inserted"] += shop.insert(desk.connection, CUSTOMERS, [shop.customer(desk.rng, key)])
    desk.customers.append(key)


def change_customer(desk: Desk) -> None:
    """Change a customer twice in a transaction, and to NULL and back at times."""
    key, fresh = desk.rng.choice(desk.customers), shop.customer(desk.rng, 0)
    desk.run("updated", f"UPDATE {CUSTOMERS} SET NOTE = NULL, BORN = NULL WHERE CUSTOMER_ID = ?", key)
    change = f"UPDATE {CUSTOMERS} SET NAME = ?, COUNTRY = ?, CREDIT = ?, BORN = ?, NOTE = ? WHERE CUSTOMER_ID = ?"
    desk.run("updated", change, *fresh[1:6], key)


def change_order(desk: Desk) -> None:
    """Change an order, and all its lines with one statement."""
    key, fresh = desk.any_order(), shop.order(desk.rng, 0, 0)
    change = f"UPDATE {ORDERS} SET STATUS = ?, TOTAL = ?, SHIP_ON = ?, EXPRESS = ? WHERE ORDER_ID = ?"
    desk.run("updated", change, fresh[2], fresh[3], fresh[5], fresh[6], key)
    desk.run("updated", f"UPDATE {LINES} SET QUANTITY = QUANTITY + 1, WEIGHT = NULL WHERE ORDER_ID = ?", key)


def put_line_first(desk: Desk) -> None:
    """Shift the keys of an order's lines, so that each takes its successor's, and insert a new first line."""
    key = desk.any_order()
    desk.run("keys shifted", f"UPDATE {LINES} SET LINE_NO = LINE_NO + 1 WHERE ORDER_ID = ?", key)
    desk.done["inserted"] += shop.insert(desk.connection, LINES, shop.lines(desk.rng, key, [1]))
    desk.orders[key] = (1, *(number + 1 for number in desk.orders[key]))


def turn_lines(desk: Desk) -> None:
    """Reverse the lines of an order: the first becomes the last, each with the other's key."""
    key = desk.any_order()
    numbers = desk.orders[key]
    total = min(numbers) + max(numbers)
    desk.run("keys shifted", f"UPDATE {LINES} SET LINE_NO = ? - LINE_NO WHERE ORDER_ID = ?", total, key)
    desk.orders[key] = tuple(sorted(total - number for number in numbers))


def renumber_order(desk: Desk) -> None:
    """Give an order another key, and its lines with it."""
    old, new = desk.any_order(), next(desk.new_keys)
    for table in (ORDERS, LINES):
        desk.run("keys shifted", f"UPDATE {table} SET ORDER_ID = ? WHERE ORDER_ID = ?", new, old)
    desk.orders[new] = desk.orders.pop(old)


def merge_customers(desk: Desk) -> None:
    """Delete a customer and give its key to another one."""
    gone, kept = desk.rng.sample(desk.customers, 2)
    desk.run("deleted", f"DELETE FROM {CUSTOMERS} WHERE CUSTOMER_ID = ?", gone)
    desk.run("keys shifted", f"UPDATE {CUSTOMERS} SET CUSTOMER_ID = ? WHERE CUSTOMER_ID = ?", gone, kept)
    desk.customers.remove(kept)


def write_line_anew(desk: Desk) -> None:
    """Delete a line and insert another one with its key."""
    key = desk.any_order()
    number = desk.rng.choice(desk.orders[key])
    desk.run("deleted", f"DELETE FROM {LINES} WHERE ORDER_ID = ? AND LINE_NO = ?", key, number)
    desk.done["inserted"] += shop.insert(desk.connection, LINES, shop.lines(desk.rng, key, [number]))


def cancel_order(desk: Desk) -> None:
    """Delete an order with its lines."""
    key = desk.any_order()
    for table in (LINES, ORDERS):
        desk.run("deleted", f"DELETE FROM {table} WHERE ORDER_ID = ?", key)
    del desk.orders[key]


WEIGHTS: dict[Callable[[Desk], None], int] = {
    take_order: 7,
    welcome_customer: 4,
    change_customer: 5,
    change_order: 6,
    put_line_first: 3,
    turn_lines: 3,
    renumber_order: 2,
    merge_customers: 2,
    write_line_anew: 3,
    cancel_order: 5,
}


class Writers:
    """Working clerks with `rate` transactions per second each. As a context manager they stop with the block.

    Each has its own customers and orders. A clerk that loses its connection opens another one and continues.
    """

    def __init__(self, connect: Callable[[], Connection], number: int = 2, rate: float = 6.0) -> None:
        self._connect, self._rate = connect, rate
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._counts = [Counter[str]() for _ in range(number)]
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"clerk-{lane}", daemon=True)
            for lane in range(number)
        ]

    @property
    def counts(self) -> Counter[str]:
        """What is committed so far: rows by kind of change, and `commits`, `rollbacks` and `lost` transactions."""
        return sum((Counter(counts) for counts in self._counts), Counter())

    def check(self) -> None:
        """Check that they still work.

        Raises:
            SourceError: a clerk gave up.
        """
        if self._error is not None:
            raise SourceError(f"a writer gave up: {self._error}", "Read the sandbox's service.log.") from self._error

    def stop(self) -> None:
        """End the running transactions and the writers. A second call does nothing."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOIN_TIMEOUT_S)

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self, lane: int) -> None:
        rng, counts = random.Random(lane), self._counts[lane]
        lost_at, lost = 0, 0
        while not self._stop.is_set():
            try:
                with closing(self._connect()) as connection:
                    self._serve(open_desk(connection, rng, lane, len(self._threads)), counts)
            except Exception as error:  # ibm_db raises Exception itself for a lost connection
                log.info("transaction lost: writer=%s error=%s", lane, error)
                lost = lost + 1 if counts["commits"] == lost_at else 1
                lost_at = counts["commits"]
                counts["lost"] += 1
                if lost >= LOST_IN_A_ROW:
                    self._error = error
                    return
                self._stop.wait(RECONNECT_S)

    def _serve(self, desk: Desk, counts: Counter[str]) -> None:
        while not self._stop.wait(desk.rng.expovariate(self._rate)):
            draft = desk.draft()
            transact(draft)
            if desk.rng.random() < ROLLBACK_RATE:
                desk.connection.rollback()
                counts["rollbacks"] += 1
                continue
            desk.connection.commit()
            desk.customers, desk.orders = draft.customers, draft.orders
            counts.update(draft.done, commits=1)


def open_desk(connection: Connection, rng: random.Random, lane: int, lanes: int) -> Desk:
    """Return the desk of one of several clerks. Its rows are those whose keys leave the remainder `lane`."""
    customers = [key for (key,) in fetch(connection, f"SELECT CUSTOMER_ID FROM {CUSTOMERS}") if key % lanes == lane]
    orders: Orders = {key: () for (key,) in fetch(connection, f"SELECT ORDER_ID FROM {ORDERS}") if key % lanes == lane}
    for key, number in fetch(connection, f"SELECT ORDER_ID, LINE_NO FROM {LINES} ORDER BY ORDER_ID, LINE_NO"):
        if key in orders:
            orders[key] = (*orders[key], number)
    connection.commit()
    return Desk(connection, rng, count(max([*customers, *orders, lane]) + lanes, lanes), customers, orders)


def transact(desk: Desk) -> None:
    """Do one of the things that clerks do, without a commit."""
    [work] = desk.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    work(desk)
