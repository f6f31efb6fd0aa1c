"""Statements of a snapshot: a table's rows, and key ranges in the database's own order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.cdc.types import MICROSECOND_DIGITS, map_type
from airflow_provider_db2cdc.sql.query import Query, count_of
from airflow_provider_db2cdc.sql.quoting import quote, quote_table, text_literal

Bound = Sequence[str]
"""A key as SQL literals, one for each column by which chunks are cut."""

NULL = "NULL"

CALL_LITERALS = {"DATE", "TIMESTAMP", "DECFLOAT"}
NUMBERS = {"SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "NUMERIC"}
FLOATS = {"REAL", "DOUBLE", "FLOAT"}
VARYING = {"VARCHAR", "LONG VARCHAR", "VARGRAPHIC", "LONG VARGRAPHIC", "VARBINARY"}
SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class ChunkKey:
    """The columns by which a table is cut into chunks.

    With a `condition` only the rows that meet it are read. With a `select` its rows are read instead of the table.
    """

    table: TableId
    columns: tuple[Column, ...]
    condition: str = ""
    select: str = ""

    @property
    def rows(self) -> str:
        """The text after FROM: the table, or the select that replaces it."""
        return f"({self.select}) AS O" if self.select else quote_table(self.table)

    @property
    def of_rows(self) -> ChunkKey:
        """The same cut for the result of `table_rows`: by K0..Kn, without the condition, which its rows meet."""
        named = tuple(replace(column, name=f"K{number}") for number, column in enumerate(self.columns))
        return replace(self, columns=named, condition="")

    @property
    def where(self) -> list[str]:
        """The condition in parentheses, if there is one."""
        return [f"({self.condition})"] if self.condition else []


def count_few(tables: Sequence[TableId], limit: int) -> Query:
    """Return the select of each table's number of rows, at most `limit`: its place in `tables`, then the number.

    It takes rows of open transactions as they are, and waits for none.
    """
    counts = (
        f"SELECT {place} AS PLACE, {count_of()} AS N FROM "
        f"(SELECT 1 AS X FROM {quote_table(table)} FETCH FIRST {limit} ROWS ONLY) AS R"
        for place, table in enumerate(tables)
    )
    return Query(f"{' UNION ALL '.join(counts)} WITH UR")


def table_rows(schema: TableSchema, cut: ChunkKey) -> str:
    """Return the select of all rows: C0..Cn in the schema's order, then K0..Kn, the columns of the cut.

    The columns of the cut are not converted. A chunk has the rows of this result that meet `chunk_predicate` of
    `cut.of_rows`.
    """
    columns = [f"{_transferred(schema.table, column)} AS C{number}" for number, column in enumerate(schema.columns)]
    keys = [f"{quote(column.name)} AS K{number}" for number, column in enumerate(cut.columns)]
    return f"SELECT {', '.join([*columns, *keys])} FROM {cut.rows}{_where(cut.where)}"


def count_rows(cut: ChunkKey, predicates: Mapping[int, str]) -> str:
    """Return the select of the number of rows of some chunks: the chunk's number, then the count."""
    counts = (
        f"SELECT {chunk} AS CHUNK, {count_of()} AS ROWS_COUNTED FROM {cut.rows}{_where([predicate])}"
        for chunk, predicate in predicates.items()
    )
    return " UNION ALL ".join(counts)


def bound_after(cut: ChunkKey, previous: Bound | None, rows: int, alike: int = 0) -> str:
    """Return the select of the key that ends the chunk of `rows` rows after `previous`.

    If fewer rows are left, the select gives no row. With `alike` above 0 it only reads rows whose first `alike` columns
    equal those of `previous`. A call only touches the index entries of its chunk, so all chunks together walk the key's
    index once. The key is converted like the columns of rows. A driver may turn a TIME 24:00:00 into 00:00:00, after
    which the walk would start again.
    """
    keys = ", ".join(quote(column.name) for column in cut.columns)
    selected = ", ".join(_transferred(cut.table, column) for column in cut.columns)
    beyond = [*_ends(cut, alike, previous, ()), _beyond(cut, previous)] if previous else []
    return (
        f"SELECT {selected} FROM {quote_table(cut.table)}{_where([*beyond, *cut.where])} "
        f"ORDER BY {keys} OFFSET {rows - 1} ROWS FETCH FIRST 1 ROW ONLY"
    )


def row_bytes(schema: TableSchema, cut: ChunkKey) -> str:
    """Return the select of the bytes of a row, as the average of the first SAMPLE_ROWS rows that the database meets.

    Fixed lengths come from the catalog, where a decimal counts its digits. Other lengths are measured. For an empty
    table the select gives no row.
    """
    varying = [f"COALESCE(LENGTH({quote(c.name)}), 0)" for c in schema.columns if c.type.upper() in VARYING]
    fixed = sum(c.length for c in schema.columns if c.type.upper() not in VARYING)
    rows = f"SELECT {' + '.join([str(fixed), *varying])} AS B FROM {cut.rows}{_where(cut.where)}"
    return f"SELECT AVG(B) AS BYTES FROM ({rows} FETCH FIRST {SAMPLE_ROWS} ROWS ONLY) AS SAMPLE HAVING COUNT(*) > 0"


def chunk_predicate(cut: ChunkKey, bounds: Sequence[Bound], chunk: int) -> str:
    """Return the predicate of one chunk. The predicates of all chunks select each row once, for any ascending bounds.

    Only the database's comparison decides whether a row is beyond a bound. Nulls lie beyond every value. Without
    columns to cut by there is one chunk, which may be read several times.
    """
    if not cut.columns:
        return " AND ".join(cut.where) or "1 = 1"
    low: Bound = bounds[chunk - 1] if chunk > 0 else ()
    high: Bound = bounds[chunk] if chunk < len(bounds) else ()
    beyond = [_beyond(cut, low)] if low else []
    within = [f"NOT ({_beyond(cut, high)})"] if high else []
    return " AND ".join([*_ends(cut, alike(low, high), low, high), *beyond, *within, *cut.where]) or "1 = 1"


def alike(low: Bound, high: Bound) -> int:
    """Return the number of leading columns in which two bounds are equal."""
    same = [a == b for a, b in zip(low, high, strict=False)]
    return same.index(False) if False in same else len(same)


def surrogate_check(table: TableId, column: str, condition: str) -> str:
    """Return the select of three counts: rows of the table, values of the column, distinct values of the column."""
    name = quote(column)
    counts = f"{count_of()} AS R, {count_of(name)} AS V, {count_of(f'DISTINCT {name}')} AS D"
    return f"SELECT {counts} FROM {quote_table(table)}{_where([f'({condition})'] if condition else [])}"


def condition_check(schema: TableSchema, condition: str) -> str:
    """Return a select that reads no row, and that the database rejects if it would reject the condition.

    For a table without a key, the condition may only name captured columns. With others only some of equal rows would
    be read.
    """
    rows = quote_table(schema.table)
    if not schema.key:
        rows = f"(SELECT {', '.join(map(quote, schema.names))} FROM {rows}) AS {quote(schema.table.name)}"
    return f"SELECT 1 AS ONE FROM {rows} WHERE ({condition}) AND 1 = 0"


def select_check(schema: TableSchema, select: str) -> str:
    """Return a select that reads no row, and that the database rejects if `select` lacks captured columns."""
    rows = f"(SELECT {', '.join(map(quote, schema.names))} FROM ({select}) AS O)"
    return f"SELECT 1 AS ONE FROM {rows} AS {quote(schema.table.name)} WHERE 1 = 0"


def key_literal(column: Column, text: str | None) -> str:
    """Return a key column's value as a literal of its type. `text` is the value as it was read (hex for bit data)."""
    if text is None:
        return NULL
    kind = column.type.upper()
    if kind in NUMBERS:
        # Java may write a small decimal with an exponent. Such a literal is a double, which equals several decimals.
        number = f"{Decimal(text):f}"
        # A literal has at most 31 digits, and a leading zero counts.
        return number.replace("0.", ".", 1) if column.scale and column.scale == column.length else number
    if kind in FLOATS:
        number = text if "E" in text.upper() else f"{text}E0"
        # The text of a REAL, read as a double, does not equal the REAL. A walk over bounds would never pass the row.
        return f"CAST({number} AS REAL)" if kind == "REAL" else number
    if kind == "TIMESTAMP" and column.scale > MICROSECOND_DIGITS:
        return f"CAST({text_literal(text)} AS TIMESTAMP({column.scale}))"
    if kind == "TIME":
        text = f"{text:0>6}"
        return f"TIME('{text[:2]}:{text[2:4]}:{text[4:]}')"
    if kind in CALL_LITERALS:
        return f"{kind}({text_literal(text)})"
    return f"X'{text}'" if column.bit_data else text_literal(text)


def _transferred(table: TableId, column: Column) -> str:
    """Return the expression that reads a column without loss through the driver."""
    return map_type(table, column).select.format(c=quote(column.name))


def _ends(cut: ChunkKey, alike: int, low: Bound, high: Bound) -> list[str]:
    """Return plain comparisons that follow from two bounds, so that Db2 can limit an index range by them.

    The first `alike` columns equal those of `low`. For a single column the bounds are such comparisons already.
    """
    terms = [_equal(*pair) for pair in zip(cut.columns[:alike], low[:alike], strict=True)]
    is_plain = len(cut.columns) == 1 and not (cut.columns[0].nullable and low and high)
    if alike == len(cut.columns) or is_plain:
        return terms
    column = cut.columns[alike]
    name, most = quote(column.name), high[alike] if high else NULL
    if low and low[alike] == NULL:
        terms.append(_equal(column, NULL))
    elif low:
        begin = f"{name} >= {low[alike]}"
        terms.append(begin if most != NULL else _or_null(column, begin))
    return terms if most == NULL else [*terms, f"{name} <= {most}"]


def _beyond(cut: ChunkKey, bound: Bound) -> str:
    """Return the predicate `key > bound`. Nulls lie beyond every value."""
    pairs = list(zip(cut.columns, bound, strict=True))
    terms = [
        " AND ".join([*(_equal(*pair) for pair in pairs[:count]), _greater(*pair)])
        for count, pair in enumerate(pairs)
        if pair[1] != NULL
    ]
    if not terms:
        return "1 = 0"
    if len(pairs) == 1:
        return terms[0]
    return f"({' OR '.join(f'({term})' for term in terms)})"


def _greater(column: Column, literal: str) -> str:
    return _or_null(column, f"{quote(column.name)} > {literal}")


def _equal(column: Column, literal: str) -> str:
    return f"{quote(column.name)} IS NULL" if literal == NULL else f"{quote(column.name)} = {literal}"


def _or_null(column: Column, comparison: str) -> str:
    return f"({comparison} OR {quote(column.name)} IS NULL)" if column.nullable else comparison


def _where(predicates: Sequence[str]) -> str:
    given = [predicate for predicate in predicates if predicate]
    return f" WHERE {' AND '.join(given)}" if given else ""
