"""Tables whose capture is no longer the plan's: stopped, started cold, registered anew, or pruned beyond an offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.capture.gap import find_gap, gap_error, not_registered_error
from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration, check_state
from airflow_provider_db2cdc.cdc.lsn import Lsn, synchpoint_of
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import RegistrationError
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.sql import asn
from airflow_provider_db2cdc.sql.catalog import created_then
from airflow_provider_db2cdc.sql.query import inline

ANEW = "a later time"
"""Whether a table is the one that it was is asked of the database, which alone compares times exactly."""

Texts = Sequence[str | None]


def registration_errors(
    asn_schema: str,
    captures: Sequence[CaptureRegistration],
    batches: Sequence[PlannedBatch],
    connection: DriverConnection,
) -> dict[TableId, Exception]:
    """Return the error of each table of whose range changes may be lost since the plan; two statements.

    Asked behind a count of what lies beyond the plan's fence: what was not captured, or pruned, was not counted.
    """
    found: dict[TableId, Texts] = {}
    for row in connection.text_rows(asn.registrations(asn_schema).text):
        found.setdefault(TableId.in_catalog(row[0], row[1]), row)
    known = {table: created for capture in captures for table, created in _created(capture).items() if created}
    rows = connection.text_rows(inline(created_then(known))) if known else []
    anew = known.keys() - {TableId.in_catalog(schema, name).among(known.keys()) for schema, name in rows}
    errors = {
        capture.table: _lost(asn_schema, capture, planned, found.get(capture.table), anew)
        for capture, planned in zip(captures, batches, strict=True)
    }
    return {table: error for table, error in errors.items() if error is not None}


def _lost(
    asn_schema: str, capture: CaptureRegistration, planned: PlannedBatch, row: Texts | None, anew: set[TableId]
) -> Exception | None:
    if row is None:
        return not_registered_error(capture.table, asn_schema)
    then, floor = capture.identity, _synchpoint(row[8])
    now = CaptureIdentity(
        change_table=str(TableId.in_catalog(row[2], row[3])),
        created=ANEW if capture.change_table in anew else then.created,
        source_created=ANEW if capture.table in anew else then.source_created,
        cold_start=str(_synchpoint(row[10]) or ""),
    )
    if gap := find_gap(capture.table, planned.after, then, now, floor, planned.upto):
        return gap_error(capture.table, gap)
    try:
        check_state(replace(capture, state=(row[4] or "").strip(), state_info=(row[5] or "").strip()), asn_schema)
    except RegistrationError as error:
        return error
    return None


def _synchpoint(digits: str | None) -> Lsn | None:
    """Return a position of the hex digits that the driver writes bit data as."""
    return synchpoint_of(bytes.fromhex(digits or ""))


def _created(capture: CaptureRegistration) -> dict[TableId, str]:
    return {capture.change_table: capture.identity.created, capture.table: capture.identity.source_created}
