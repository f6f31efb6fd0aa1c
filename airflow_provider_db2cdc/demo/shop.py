"""The shop: three tables of schema SHOP, created, filled and registered for capture."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute

SCHEMA = "SHOP"
CUSTOMERS, ORDERS, LINES = TABLES = tuple(TableId(SCHEMA, name) for name in ("CUSTOMERS", "ORDERS", "ORDER_LINES"))

KEYS = {CUSTOMERS: ("CUSTOMER_ID",), ORDERS: ("ORDER_ID",), LINES: ("ORDER_ID", "LINE_NO")}

DDL = (
    f"CREATE SCHEMA {SCHEMA}",
    f"CREATE TABLE {CUSTOMERS} (CUSTOMER_ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(60) NOT NULL, "
    "COUNTRY CHAR(5) NOT NULL, CREDIT DECIMAL(11, 2), BORN DATE, NOTE VARCHAR(200), CHANGED_AT TIMESTAMP NOT NULL)",
    f"CREATE TABLE {ORDERS} (ORDER_ID BIGINT NOT NULL PRIMARY KEY, CUSTOMER_ID INTEGER NOT NULL, STATUS CHAR(8) "
    "NOT NULL, TOTAL DECIMAL(13, 2), ORDERED_AT TIMESTAMP NOT NULL, SHIP_ON DATE, EXPRESS SMALLINT)",
    f"CREATE TABLE {LINES} (ORDER_ID BIGINT NOT NULL, LINE_NO INTEGER NOT NULL, ARTICLE VARCHAR(40) NOT NULL, "
    "QUANTITY INTEGER, PRICE DECIMAL(9, 2), WEIGHT DOUBLE, PRIMARY KEY (ORDER_ID, LINE_NO))",
)

NAMES = ("Ada", "Grace O'Hara", "Zoë", "Łukasz", "Jürgen", "Ana  María ", "渡辺", "Bob", "Noor")
COUNTRIES = ("DE", "PL", "FR", "JP", "ES", "NL")
NOTES = (None, "", "pays late", 'calls it "urgent"', "two\nlines", "blank at the end ", "50 % off; \\ and '")
STATES = ("NEW", "PAID", "PACKED", "SENT", "BACK")
ARTICLES = ("tea", "café", "kettle", "mug, large", "spoon ½", "sieve")

Row = tuple[Any, ...]
Orders = dict[int, tuple[int, ...]]
"""Each order's line numbers."""


def build(connection: Connection, rows: int, seed: int = 1) -> dict[TableId, int]:
    """Create the tables with about `rows` rows in all, register them, and return how many each has."""
    rng = random.Random(seed)
    for statement in DDL:
        execute(connection, statement)
    customers = list(range(1, max(2, rows // 5) + 1))
    orders: Orders = {}
    while len(customers) + len(orders) + sum(map(len, orders.values())) < rows:
        orders[len(orders) + 1] = tuple(range(1, rng.randint(1, 5) + 1))
    filled = {
        CUSTOMERS: [customer(rng, key) for key in customers],
        ORDERS: [order(rng, key, rng.choice(customers)) for key in orders],
        LINES: [row for key, numbers in orders.items() for row in lines(rng, key, numbers)],
    }
    counts = {table: insert(connection, table, content) for table, content in filled.items()}
    connection.commit()
    for table in TABLES:
        control_tables.addtable(connection, table.schema, table.name)
    return counts


def insert(connection: Connection, table: TableId, rows: Sequence[Row]) -> int:
    """Insert rows without a commit and return how many."""
    if not rows:
        return 0
    cursor = connection.cursor()
    try:
        cursor.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", tuple(rows))
    finally:
        cursor.close()
    return len(rows)


def customer(rng: random.Random, key: int) -> Row:
    """Return a row of CUSTOMERS."""
    born = None if rng.random() < 0.2 else date(1940, 2, 29) + timedelta(days=rng.randrange(25_000))
    credit = None if rng.random() < 0.2 else amount(rng, 100_000)
    return (key, rng.choice(NAMES), rng.choice(COUNTRIES), credit, born, rng.choice(NOTES), moment(rng))


def order(rng: random.Random, key: int, customer: int) -> Row:
    """Return a row of ORDERS."""
    ship_on = None if rng.random() < 0.4 else date(2026, 1, 1) + timedelta(days=rng.randrange(300))
    return (key, customer, rng.choice(STATES), amount(rng, 900), moment(rng), ship_on, rng.choice((None, 0, 1)))


def line(rng: random.Random, key: int, number: int) -> Row:
    """Return a row of ORDER_LINES."""
    weight = None if rng.random() < 0.3 else rng.random() * 10
    return (key, number, rng.choice(ARTICLES), rng.randint(1, 20), amount(rng, 90), weight)


def lines(rng: random.Random, key: int, numbers: Iterable[int]) -> list[Row]:
    """Return rows of ORDER_LINES of one order."""
    return [line(rng, key, number) for number in numbers]


def amount(rng: random.Random, limit: int) -> Decimal:
    """Return a sum of money with two decimal places. It may be negative."""
    return Decimal(rng.randint(-limit * 10, limit * 100)) / 100


def moment(rng: random.Random) -> datetime:
    """Return a time stamp of 2026 to the microsecond. It may lie in the hour that the start of summer time skips."""
    return datetime(2026, 1, 1) + timedelta(microseconds=rng.randrange(300 * 86_400 * 1_000_000))
