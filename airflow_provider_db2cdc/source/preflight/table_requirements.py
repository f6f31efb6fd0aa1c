"""What a registered table must be like to be replicated; the plan and the preflight ask the same questions."""

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
    instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig
) -> list[tuple[str, Db2CdcError | None]]:
    """Return each condition's name with the error it raised, or None where the table meets it.

    A table without source or change table is asked nothing else.
    """
    found = [(name, _error(condition, instance, schema, config)) for name, condition in EXISTENCE.items()]
    if any(error for _, error in found):
        return found
    return [*found, *((name, _error(condition, instance, schema, config)) for name, condition in CONDITIONS.items())]


def require(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    """Refuse a table that cannot be replicated, with everything that stands against it.

    :raises RegistrationError: it is not captured as it must be.
    :raises ConfigurationError: only the pipeline's configuration stands against it.
    """
    errors = [error for _, error in failed_requirements(instance, schema, config) if error is not None]
    if errors:
        kind = RegistrationError if any(isinstance(error, RegistrationError) for error in errors) else type(errors[0])
        raise kind(" ".join(map(str, errors)))


def _check_source_table(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    if not schema.columns and not schema.uncaptured_columns:
        raise RegistrationError(
            f"{instance.table} is registered, but the catalog has no such table (or none of its columns is chosen)",
            f"Remove the registration ({config.asn_schema}.REMOVETABLE), or exclude it with table.exclude.list.",
        )


def _check_change_table(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    lacking = [name for name in (COMMIT, INTENT, OPERATION) if name not in instance.cd_names]
    if lacking:
        name = f"{instance.cd_owner}.{instance.cd_table}" if instance.cd_table else "none"
        raise RegistrationError(
            f"the change table of {instance.table} ({name}) "
            + (f"has no column {lacking[0]}" if instance.cd_names else "does not exist"),
            f"Register the table again ({config.asn_schema}.REMOVETABLE, ADDTABLE), then have it snapshotted anew by "
            f"{restart_hint(instance.table)}.",
        )


def _check_state(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    check_state(instance, config.asn_schema)


def _check_key(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    named = config.selection.named_key(schema.table)
    if named and (lacking := named.lacking(schema.names)):
        raise ConfigurationError(
            f"{PROPERTY} names {', '.join(lacking)} of {instance.table}, which has no such captured column",
            f"Its captured columns are {', '.join(schema.names)}; correct the property, or register the table again "
            "with the column.",
        )
    if not schema.key and instance.update_as == "U" and not has_before_images(schema, instance):
        raise RegistrationError(
            f"{instance.table} has no key (neither a primary key nor a unique index whose columns are all captured; an "
            "index that excludes null keys only counts if its columns are NOT NULL), and its change table does not "
            "tell which row an update changed",
            "Register it with CHG_UPD_TO_DEL_INS = 'Y', then reinit the capture agent; or name columns whose values "
            f"are unique with {PROPERTY} ('{name_of(schema.table)}:<column>,<column>'), or exclude the table with "
            "table.exclude.list.",
        )


def _check_select(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    if not schema.key and is_overridden(schema.table, config.snapshot_overrides):
        raise ConfigurationError(
            f"{instance.table} has no key, so of equal rows its select may read some only, and the others would be "
            "taken for gone",
            f"Take the table out of {SELECTS}, or name columns whose values are unique with {PROPERTY} "
            f"('{name_of(schema.table)}:<column>,<column>').",
        )


def _check_updates(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    if instance.update_as == "U" and not config.accept_update_rows and not has_before_images(schema, instance):
        raise RegistrationError(
            f"{instance.table} is registered with CHG_UPD_TO_DEL_INS = 'N' and without a before image of each column, "
            "where an update of a key leaves no trace of the old key",
            "Register it with 'Y', then reinit the capture agent; or, if its keys are never updated, set "
            "accept.update.rows.",
        )


def _check_before_images(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    """Refuse a column of the change table that is one column's before image by its name, and another's by its own.

    One that is not replicated is harmless, unless the others seem to have a before image each because of it.
    """
    prefix, there = instance.before_prefix, {*instance.cd_names}
    if not prefix:
        return
    own = {*schema.names, *schema.excluded_columns, *schema.uncaptured_columns} & there
    imaged = [name for name in instance.cd_names if f"{prefix}{name}" in own]
    unclear = {f"{prefix}{name}": name for name in imaged if f"{prefix}{prefix}{name}" not in there}
    misread = all(f"{prefix}{name}" in there for name in schema.names if name not in unclear)
    if unclear and (misread or not unclear.keys().isdisjoint(schema.names)):
        named = ", ".join(f"{image} (of {name})" for image, name in unclear.items())
        leave_out = "" if misread else "leave them out with column.exclude.list, or "
        remedy = f"{leave_out}register the table again with another BEFORE_IMG_PREFIX."
        raise RegistrationError(
            f"the change table of {instance.table} has columns that may be before images (BEFORE_IMG_PREFIX is "
            f"{prefix!r}) or captured columns of that very name: {named}",
            remedy[0].upper() + remedy[1:],
        )


def _check_types(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    for column in schema.columns:
        map_type(schema.table, column)


def _check_values(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    """Refuse columns whose values the change table has in part, or not at all."""
    long = [column.name for column in schema.columns if column.type.upper() in LONG_TYPES]
    if long and instance.data_capture != "L":
        raise RegistrationError(
            f"{instance.table} lacks {CAPTURE_LONG}, without which values of {', '.join(long)} are not captured",
            f"`ALTER TABLE {quote_table(instance.table)} {CAPTURE_LONG}`. If it was replicated before, have it "
            f"snapshotted again by {restart_hint(instance.table)}. Or leave them out with column.exclude.list.",
        )
    carried = {column.name: column for column in instance.cd_columns}
    pairs = [(column, carried[column.name]) for column in schema.columns if column.name in carried]
    cut = [f"{one.name} ({described(one)}, there {described(other)})" for one, other in pairs if cuts(one, other)]
    if cut:
        raise RegistrationError(
            f"the change table of {instance.table} ({instance.change_table}) cuts values of {', '.join(cut)}",
            "ALTER its columns to the source table's types and reinit the capture agent, then, if there were changes "
            f"meanwhile, have the table snapshotted anew by {restart_hint(instance.table)}.",
        )


def _check_names(instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig) -> None:
    check_names(schema)


def _error(
    condition: Condition, instance: CaptureRegistration, schema: TableSchema, config: PipelineConfig
) -> Db2CdcError | None:
    try:
        condition(instance, schema, config)
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
