"""Tables whose capture changed after the plan: stopped, started cold, registered again, or pruned beyond an offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, gap_error, not_registered_error
from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration, check_state
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange, synchpoint_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import RegistrationError
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.sql import asn
from airflow_provider_db2cdc.sql.catalog import created_then
from airflow_provider_db2cdc.sql.query import inline

RECREATED = "a later time"
"""Stands for the creation time of a table that was created again.

The database decides whether a table is still the same. Only it compares times exactly.
"""

Texts = Sequence[str | None]


def registration_errors(
    asn_schema: str,
    captures: Sequence[CaptureRegistration],
    spans: Sequence[LsnRange],
    connection: DriverConnection,
) -> dict[TableId, Exception]:
    """Return an error for each table that may have lost changes of its span since the plan.

    Runs two statements. Call it after the count of changes beyond the plan's capture position. That count misses
    changes that were never captured or are pruned already: a check before it could pass and the loss come after it.
    """
    registered: dict[TableId, Texts] = {}
    for row in connection.text_rows(asn.registrations(asn_schema).text):
        registered.setdefault(TableId.in_catalog(row[0], row[1]), row)
    known = {table: created for capture in captures for table, created in _created(capture).items() if created}
    rows = connection.text_rows(inline(created_then(known))) if known else []
    recreated = known.keys() - {TableId.in_catalog(schema, name).among(known.keys()) for schema, name in rows}
    errors = {
        capture.table: _registration_error(asn_schema, capture, span, registered.get(capture.table), recreated)
        for capture, span in zip(captures, spans, strict=True)
    }
    return {table: error for table, error in errors.items() if error is not None}


def _registration_error(
    asn_schema: str, capture: CaptureRegistration, span: LsnRange, row: Texts | None, recreated: set[TableId]
) -> Exception | None:
    if row is None:
        return not_registered_error(capture.table, asn_schema)
    then, floor = capture.identity, _synchpoint(row[8])
    now = CaptureIdentity(
        change_table=str(TableId.in_catalog(row[2], row[3])),
        created=RECREATED if capture.change_table in recreated else then.created,
        source_created=RECREATED if capture.table in recreated else then.source_created,
        cold_start=str(_synchpoint(row[10]) or ""),
    )
    if gap := find_gap(CapturePoint(span.after, then), CapturePoint(span.upto, now, floor)):
        return gap_error(capture.table, gap)
    try:
        check_state(replace(capture, state=(row[4] or "").strip(), state_info=(row[5] or "").strip()), asn_schema)
    except RegistrationError as error:
        return error
    return None


def _synchpoint(digits: str | None) -> Lsn | None:
    """Return the LSN of hex digits, the form in which the driver returns bit data; None for an empty text."""
    return synchpoint_of(bytes.fromhex(digits or ""))


def _created(capture: CaptureRegistration) -> dict[TableId, str]:
    return {capture.change_table: capture.identity.created, capture.table: capture.identity.source_created}
