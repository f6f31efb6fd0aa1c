"""A pipeline's configuration, under Debezium's names.

`PipelineConfig.from_properties` takes a mapping. `config.files.load.load_config` reads one from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from airflow_provider_db2cdc.cdc.capture.interval import EndAt, check_repetition
from airflow_provider_db2cdc.cdc.event.change_event import KeyChangeDetection
from airflow_provider_db2cdc.cdc.job import ApplySettings, Isolation, Watermarking
from airflow_provider_db2cdc.cdc.selection.select_override import PROPERTY as OVERRIDES
from airflow_provider_db2cdc.cdc.selection.select_override import check_overrides
from airflow_provider_db2cdc.cdc.selection.tables import Selection
from airflow_provider_db2cdc.cdc.snapshot.mode import (
    MODES,
    OLD_NAMES,
    GapRepair,
    Snapshotter,
    configured,
)
from airflow_provider_db2cdc.config.custom_mode import load_snapshotter
from airflow_provider_db2cdc.config.parsing import Mistakes, classify, flatten, read_value, refusal, resolve_used
from airflow_provider_db2cdc.config.properties import find_property
from airflow_provider_db2cdc.config.property_check import (
    Age,
    CheckedSelection,
    Master,
    SignalTable,
    SnapshotInclude,
    Target,
    TimeZone,
    property_error,
)
from airflow_provider_db2cdc.config.validation_message import explain
from airflow_provider_db2cdc.config.values import WORD, Count, CountOrZero, Password, PlainText, Seconds, SecondsOrZero
from airflow_provider_db2cdc.errors import ConfigurationError

SnapshotMode = Annotated[
    Literal["initial", "always", "initial_only", "no_data", "recovery", "when_needed", "configuration_based", "custom"],
    BeforeValidator(lambda name: OLD_NAMES.get(name, name) if isinstance(name, str) else name),
    WORD,
]


Unshown = Annotated[Mapping[str, PlainText], Field(repr=False)]
"""Properties that may hold secrets. Airflow shows a task's arguments, and so the text of a configuration."""


EMPTY = {
    "table.include.list": "all tables are carried",
    "table.exclude.list": "no table is excluded",
    "column.include.list": "all columns are carried",
    "column.exclude.list": "no column is excluded",
    "message.key.columns": "each table keeps its own key",
    "snapshot.include.collection.list": "all tables begin with a snapshot",
}
"""The effect of a list that is given, but empty."""

FILL_OR_REMOVE = "Fill the list (a variable in it may be empty), or remove it."


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class DatabaseConfig(_Frozen):
    """The address of Db2 for the command line. Airflow takes a connection instead."""

    hostname: str
    dbname: str
    user: str
    password: Password
    port: Annotated[Count, Field(lt=65536)] = 50000
    ssl: bool = False
    ssl_certificate: Path | None = None
    options: Unshown = Field(default_factory=dict)
    jdbc_options: Unshown = Field(default_factory=dict)


class SparkConfig(_Frozen):
    """The settings of Spark for the command line. Airflow takes a connection instead."""

    master: Master = "local[*]"
    jars: Path | None = None
    packages: tuple[str, ...] = ()
    conf: Unshown = Field(default_factory=dict)
    binary: str = ""


class PipelineConfig(_Frozen):
    """The configuration of one pipeline.

    `server_name` is Debezium's topic.prefix. `target` is a path or a schema of a catalog (cdc.layout). `ignored` holds
    the properties that have no meaning here, each with the reason. `warnings` holds texts on properties that are valid,
    but perhaps not intended.
    """

    pipeline: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    target: Target
    server_name: str = ""
    asn_schema: str = "ASNCDC"
    selection: CheckedSelection = Field(default_factory=Selection)
    snapshot_mode: SnapshotMode = "initial"
    snapshot_data: bool = False
    snapshot_stream: bool = False
    snapshot_on_data_error: bool = False
    snapshot_custom: str = ""
    gap_repair: Annotated[GapRepair, WORD] = "snapshot"
    snapshot_include: SnapshotInclude = ()
    snapshot_overridden: tuple[str, ...] = ()
    snapshot_overrides: Mapping[str, str] = Field(default_factory=dict)
    snapshot_isolation: Annotated[Isolation, WORD] = "read_committed"
    snapshot_fetch_rows: CountOrZero = 10_000
    query_fetch_rows: CountOrZero = 10_000
    max_rows_per_batch: Count = 1_000_000
    end_at: Annotated[EndAt, WORD] = "fence"
    repeat_s: SecondsOrZero = 0.0
    time_zone: TimeZone = ""
    capture_stale_after_s: Seconds = 900.0
    offsets_max_age_s: Seconds = 86_400.0
    change_log_retention: Age | None = None
    accept_update_rows: bool = False
    deletion_vectors: bool | None = None
    shared_mount: bool = False
    tombstones: bool = True
    key_change_detection: Annotated[KeyChangeDetection, WORD] = "adjacent"
    parallel_tables: Count = 4
    parallel_reads: Count = 8
    rows_per_read: Count = 50_000
    snapshot_chunk_rows: Count = 200_000
    snapshot_chunk_bytes: Count | None = None
    snapshot_group_chunks: Count | None = None
    snapshot_budget_s: SecondsOrZero = 900.0
    watermarking: Annotated[Watermarking, WORD] = "read_only"
    signal_table: SignalTable = ""
    signal_channels: tuple[str, ...] = ("source", "airflow")
    signal_file: Path | None = None
    notification_channels: tuple[str, ...] = ("delta", "log")
    kafka_bootstrap_servers: str = ""
    kafka_topic: str = ""
    kafka_group_id: str = ""
    kafka_outcomes_topic: str = ""
    kafka_consumer: Unshown = Field(default_factory=dict)
    high_mark_timeout_s: Seconds = 600.0
    offsets_file: Path | None = None
    database: DatabaseConfig | None = None
    spark: SparkConfig = Field(default_factory=SparkConfig)
    ignored: Mapping[str, str] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _name_server(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("server_name", "") == "" and isinstance(data.get("pipeline"), str):
            return {**data, "server_name": data["pipeline"]}
        return data

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        with property_error():
            check_overrides(self.snapshot_overridden, self.snapshot_overrides)
            check_repetition(self.repeat_s, self.end_at)
        return self

    @property
    def snapshotter(self) -> Snapshotter:
        """The object that decides about snapshots.

        :raises ConfigurationError: when the custom class cannot be loaded.
        """
        match self.snapshot_mode:
            case "custom":
                return load_snapshotter(self.snapshot_custom)
            case "configuration_based":
                return configured(self.snapshot_data, self.snapshot_stream, self.snapshot_on_data_error)
            case name:
                return MODES[name]

    @property
    def settings(self) -> ApplySettings:
        """The settings of this configuration for the Spark job."""
        return ApplySettings(
            tombstones=self.tombstones,
            key_change_detection=self.key_change_detection,
            parallel_tables=self.parallel_tables,
            parallel_reads=self.parallel_reads,
            rows_per_read=self.rows_per_read,
            snapshot_chunk_rows=self.snapshot_chunk_rows,
            snapshot_chunk_bytes=self.snapshot_chunk_bytes,
            snapshot_group_chunks=self.snapshot_group_chunks,
            snapshot_budget_s=self.snapshot_budget_s,
            watermarking=self.watermarking,
            snapshot_isolation=self.snapshot_isolation,
            snapshot_fetch_rows=self.snapshot_fetch_rows,
            query_fetch_rows=self.query_fetch_rows,
            snapshot_on_gap=self.snapshotter.snapshot_on_gap(),
            gap_repair=self.gap_repair,
            recover_offsets=self.snapshotter.recover_offset(),
            high_mark_timeout_s=self.high_mark_timeout_s,
            accept_update_rows=self.accept_update_rows,
            streaming=self.snapshotter.stream(),
            end_at=self.end_at,
            deletion_vectors=self.deletion_vectors,
            shared_mount=self.shared_mount,
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Return the configuration from properties under dotted or snake_case names, or from a connector's JSON.

        :raises ConfigurationError: when properties are unknown, unsupported, contradicting or malformed. It lists all
            of them.
        """
        flat, mistakes = flatten(properties)
        resolved, unresolved = resolve_used(flat, None)
        return cls.from_flat(resolved, {**mistakes, **unresolved})

    @classmethod
    def from_flat(cls, properties: Mapping[str, Any], mistakes: Mistakes) -> Self:
        """Return the configuration from properties under dotted names, without placeholders.

        The properties of earlier `mistakes` are not checked again.

        :raises ConfigurationError: when there are mistakes. It lists all of them.
        """
        given = classify(properties)
        data: dict[str, Any] = {"ignored": given.ignored, "warnings": _empty_lists(properties)}
        for name, (item, value) in given.used.items():
            inside = [name[len(item.name) - 1 :]] if item.name.endswith("*") else []
            _place(data, [*item.field.split("."), *inside], read_value(item, value))
        texts = [*mistakes.values(), *given.mistakes.values()]
        try:
            config = cls.model_validate(data)
        except ValidationError as error:
            invalid = {**_override_mistake(data), **explain(error)}
            raise refusal([*texts, *_unjudged(invalid, mistakes)]) from None
        if texts:
            raise refusal(texts)
        return config


def _place(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        data = data.setdefault(part, {})
    if value is not None:
        data[path[-1]] = value


def _override_mistake(data: Mapping[str, Any]) -> Mistakes:
    """Return the mistakes of custom selects. Pydantic only compares fields if all of them are valid."""
    listed, selects = data.get("snapshot_overridden", ()), data.get("snapshot_overrides", {})
    if isinstance(listed, tuple) and all(isinstance(text, str) for text in (*listed, *selects.values())):
        try:
            check_overrides(listed, selects)
        except ConfigurationError as error:
            return {"": str(error)}
    return {}


def _unjudged(invalid: Mistakes, mistakes: Mistakes) -> list[str]:
    """Return the texts of invalid properties that have no mistake yet."""
    judged = [item.name for item in map(find_property, mistakes) if item]
    known = {name for name in invalid if any(_is_of(name, judged_name) for judged_name in judged)}
    known |= {""} if any(judged_name.startswith(OVERRIDES) for judged_name in judged) else set()
    return [text for name, text in invalid.items() if name not in known]


def _is_of(name: str, property_name: str) -> bool:
    return name.startswith(property_name[:-1]) if property_name.endswith("*") else name == property_name


def _empty_lists(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a warning for each list that is given, but empty. It chooses nothing, so all may be carried."""
    return tuple(
        f"{name} is given, but empty: {EMPTY[item.name]}"
        for name, value in properties.items()
        if (item := find_property(name)) and item.name in EMPTY and not read_value(item, value)
    )
