from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sql import asn, catalog
from airflow_provider_db2cdc.sql.query import Query

LOW, HIGH = Lsn(bytes(16)), Lsn(bytes(15) + b"\x0f")
SPAN = LsnRange(LOW, HIGH)
LOW_LITERAL, HIGH_LITERAL = "X'00000000000000000000000000000000'", "X'0000000000000000000000000000000F'"


def capture(name: str) -> CaptureRegistration:
    identity = CaptureIdentity(f"ASN.{name}", "", "", "")
    return CaptureRegistration(TableId("S", "T"), "ASN", name, "A", "", "DI", None, None, None, (), identity)


def test_count_is_one_statement_and_compares_the_bare_column() -> None:
    query = asn.count_changes([(capture("CD_A"), SPAN), (capture('CD"B'), SPAN)])
    where = f"WHERE IBMSNAP_COMMITSEQ > {LOW_LITERAL} AND IBMSNAP_COMMITSEQ <= {HIGH_LITERAL}"
    assert query.text == (
        f'SELECT 0 AS PLACE, CAST(COUNT_BIG(*) AS BIGINT) AS CHANGES FROM "ASN"."CD_A" {where} UNION ALL '
        f'SELECT 1 AS PLACE, CAST(COUNT_BIG(*) AS BIGINT) AS CHANGES FROM "ASN"."CD""B" {where}'
    )
    assert query.params == ()


def test_a_commit_is_looked_up_by_the_bare_column_and_its_millisecond() -> None:
    own, older = f"WHERE IBMSNAP_COMMITSEQ = {HIGH_LITERAL}", f"CASE WHEN MIN(IBMSNAP_COMMITSEQ) < {HIGH_LITERAL}"
    times = (
        "IBMSNAP_LOGMARKER >= TIMESTAMP('2026-01-02 03:04:05.999000') "
        "AND IBMSNAP_LOGMARKER < TIMESTAMP('2026-01-02 03:04:06.000000')"
    )
    number, uow = "CAST(COUNT_BIG(*) AS BIGINT) AS CHANGES", '"ASN"."IBMSNAP_UOW"'
    at = datetime(2026, 1, 2, 3, 4, 5, 999_000)
    later = times.replace("03:04:0", "04:04:0")
    assert asn.traces("ASN", capture("CD"), HIGH, [at, at + timedelta(hours=1)]) == (
        f'SELECT -1 AS PLACE, {number} FROM "ASN"."CD" {own}',
        f"SELECT -2 AS PLACE, {number} FROM {uow} {own}",
        f"SELECT -3 AS PLACE, {number} FROM {uow} {own} AND (({times}) OR ({later}))",
        f'SELECT -4 AS PLACE, {older} THEN 1 ELSE 0 END AS CHANGES FROM "ASN"."CD"',
        f"SELECT -4 AS PLACE, {older} THEN 1 ELSE 0 END AS CHANGES FROM {uow}",
    )


def test_last_commit_before_excludes_both_ends() -> None:
    assert asn.last_commit_before(capture("CD"), SPAN).text == (
        f'SELECT MAX(IBMSNAP_COMMITSEQ) FROM "ASN"."CD" '
        f"WHERE IBMSNAP_COMMITSEQ > {LOW_LITERAL} AND IBMSNAP_COMMITSEQ < {HIGH_LITERAL}"
    )


@pytest.mark.parametrize("query", [asn.registrations, asn.capture_conditions, asn.global_row, asn.capture_position])
def test_control_schema_is_quoted(query: Callable[[str], Query]) -> None:
    text = query('as"n').text
    assert '"as""n"."IBMSNAP_' in text
    assert text.count('as"n') == 0


def test_nothing_is_read_uncommitted() -> None:
    texts = [
        asn.capture_position("A").text,
        asn.registrations("A").text,
        asn.global_row("A").text,
        asn.source_clock().text,
    ]
    assert not [text for text in texts if "WITH UR" in text.upper()]


def test_catalog_statement_takes_many_tables_as_parameters() -> None:
    tables = [TableId("S", "A"), TableId("s'x", "B")]
    for query in (catalog.tables(tables), catalog.columns(tables), catalog.indexes(tables)):
        assert query.text.count("?") == 4
        assert query.params == ("S", "A", "s'x", "B")
