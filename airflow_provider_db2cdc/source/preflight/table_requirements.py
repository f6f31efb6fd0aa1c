"""The requirements that a registered table must meet to be replicated. The plan and the preflight share them."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration, check_state
from airflow_provider_db2cdc.cdc.offset.offset import restart_hint
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY
from airflow_provider_db2cdc.cdc.selection.select_override import PROPERTY as SELECTS
from airflow_provider_db2cdc.cdc.selection.select_override import is_overridden
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.table import TableSchema, check_names
from airflow_provider_db2cdc.cdc.types import LONG_TYPES, cuts, described, map_type
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError, RegistrationError
from airflow_provider_db2cdc.sql.changes import COMMIT, INTENT, OPERATION, has_before_images
from airflow_provider_db2cdc.sql.quoting import quote_table

CAPTURE_LONG = "DATA CAPTURE CHANGES INCLUDE LONGVAR COLUMNS"

Condition = Callable[[CaptureRegistration, TableSchema, PipelineConfig], None]


def failed_requirements(
    capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig
) -> list[tuple[str, Db2CdcError | None]]:
    """Return each condition's name with the error that it raised, or None if the table meets it.

    Without its source table or change table, a table is checked for nothing else.
    """
    errors = [(name, _error(condition, capture, schema, config)) for name, condition in EXISTENCE.items()]
    if any(error for _, error in errors):
        return errors
    return [
        *errors,
        *((name, _error(condition, capture, schema, config)) for name, condition in CONDITIONS.items()),
    ]


def require(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    """Reject a table that cannot be replicated. The error lists every condition that it does not meet.

    :raises RegistrationError: when its registration or change table does not meet a condition.
    :raises ConfigurationError: when only the pipeline's configuration is wrong.
    """
    errors = [error for _, error in failed_requirements(capture, schema, config) if error is not None]
    if errors:
        kind = RegistrationError if any(isinstance(error, RegistrationError) for error in errors) else type(errors[0])
        raise kind(" ".join(map(str, errors)))


def _check_source_table(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    if not schema.columns and not schema.uncaptured_columns:
        raise RegistrationError(
            f"{capture.table} is registered, but the catalog has no such table (or none of its columns is chosen)",
            f"Remove the registration ({config.asn_schema}.REMOVETABLE), or exclude it with table.exclude.list.",
        )


def _check_change_table(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    lacking = [name for name in (COMMIT, INTENT, OPERATION) if name not in capture.cd_names]
    if lacking:
        name = f"{capture.cd_owner}.{capture.cd_table}" if capture.cd_table else "none"
        raise RegistrationError(
            f"the change table of {capture.table} ({name}) "
            + (f"has no column {lacking[0]}" if capture.cd_names else "does not exist"),
            f"Register the table again ({config.asn_schema}.REMOVETABLE, ADDTABLE), then have it snapshotted again by "
            f"{restart_hint(capture.table)}.",
        )


def _check_state(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    check_state(capture, config.asn_schema)


def _check_key(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    named_key = config.selection.named_key(schema.table)
    if named_key and (lacking := named_key.lacking(schema.names)):
        raise ConfigurationError(
            f"{PROPERTY} names {', '.join(lacking)} of {capture.table}, which has no such captured column",
            f"Its captured columns are {', '.join(schema.names)}; correct the property, or register the table again "
            "with the column.",
        )
    if not schema.key and capture.update_as == "U" and not has_before_images(schema, capture):
        raise RegistrationError(
            f"{capture.table} has no key (neither a primary key nor a unique index whose columns are all captured; an "
            "index that excludes null keys only counts if its columns are NOT NULL), and its change table does not "
            "show which row an update changed",
            "Register it with CHG_UPD_TO_DEL_INS = 'Y', then reinit the capture agent; or name columns whose values "
            f"are unique with {PROPERTY} ('{name_of(schema.table)}:<column>,<column>'), or exclude the table with "
            "table.exclude.list.",
        )


def _check_select(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    if not schema.key and is_overridden(schema.table, config.snapshot_overrides):
        raise ConfigurationError(
            f"{capture.table} has no key, so of equal rows its select may read some only, and the others would be "
            "taken for gone",
            f"Take the table out of {SELECTS}, or name columns whose values are unique with {PROPERTY} "
            f"('{name_of(schema.table)}:<column>,<column>').",
        )


def _check_updates(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    if capture.update_as == "U" and not config.accept_update_rows and not has_before_images(schema, capture):
        raise RegistrationError(
            f"{capture.table} is registered with CHG_UPD_TO_DEL_INS = 'N' and without a before image of each column, "
            "where an update of a key leaves no trace of the old key",
            "Register it with 'Y', then reinit the capture agent; or, if its keys are never updated, set "
            "accept.update.rows.",
        )


def _check_before_images(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    """Reject a change table in which a column may be a before image or a captured column, by its name.

    Such a column is harmless if it is not replicated. The exception is that with it every other column seems to have a
    before image.
    """
    prefix, cd_names = capture.before_prefix, {*capture.cd_names}
    if not prefix:
        return
    captured = {*schema.names, *schema.excluded_columns, *schema.uncaptured_columns} & cd_names
    imaged = [name for name in capture.cd_names if f"{prefix}{name}" in captured]
    unclear = {f"{prefix}{name}": name for name in imaged if f"{prefix}{prefix}{name}" not in cd_names}
    misread = all(f"{prefix}{name}" in cd_names for name in schema.names if name not in unclear)
    if unclear and (misread or not unclear.keys().isdisjoint(schema.names)):
        named = ", ".join(f"{image} (of {name})" for image, name in unclear.items())
        exclude = "" if misread else "exclude them with column.exclude.list, or "
        remedy = f"{exclude}register the table again with another BEFORE_IMG_PREFIX."
        raise RegistrationError(
            f"the change table of {capture.table} has columns that may be before images (BEFORE_IMG_PREFIX is "
            f"{prefix!r}) or captured columns of that very name: {named}",
            remedy[0].upper() + remedy[1:],
        )


def _check_types(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    for column in schema.columns:
        map_type(schema.table, column)


def _check_values(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    """Reject columns whose values the change table cuts or lacks."""
    long = [column.name for column in schema.columns if column.type.upper() in LONG_TYPES]
    if long and capture.data_capture != "L":
        raise RegistrationError(
            f"{capture.table} lacks {CAPTURE_LONG}, without which values of {', '.join(long)} are not captured",
            f"`ALTER TABLE {quote_table(capture.table)} {CAPTURE_LONG}`. If it was replicated before, have it "
            f"snapshotted again by {restart_hint(capture.table)}. Or exclude them with column.exclude.list.",
        )
    carried = {column.name: column for column in capture.cd_columns}
    pairs = [(column, carried[column.name]) for column in schema.columns if column.name in carried]
    cut = [
        f"{column.name} ({described(column)}, there {described(carrier)})"
        for column, carrier in pairs
        if cuts(column, carrier)
    ]
    if cut:
        raise RegistrationError(
            f"the change table of {capture.table} ({capture.change_table}) cuts values of {', '.join(cut)}",
            "ALTER its columns to the source table's types and reinit the capture agent, then, if there were changes "
            f"meanwhile, have the table snapshotted again by {restart_hint(capture.table)}.",
        )


def _check_names(capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    check_names(schema)


def _error(
    condition: Condition, capture: CaptureRegistration, schema: TableSchema, config: PipelineConfig
) -> Db2CdcError | None:
    try:
        condition(capture, schema, config)
    except (RegistrationError, ConfigurationError) as error:
        return error
    return None


EXISTENCE: dict[str, Condition] = {"source table": _check_source_table, "change table": _check_change_table}
CONDITIONS: dict[str, Condition] = {
    "state": _check_state,
    "key": _check_key,
    "select": _check_select,
    "update rows": _check_updates,
    "before images": _check_before_images,
    "types": _check_types,
    "values": _check_values,
    "column names": _check_names,
}
