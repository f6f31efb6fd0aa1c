"""A pipeline's configuration, in Debezium's own words.

`PipelineConfig.from_properties` takes a mapping; `config_file.load_config` reads one from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from airflow_provider_db2cdc.cdc.collection import parse_table
from airflow_provider_db2cdc.cdc.event import KeyChangeDetection
from airflow_provider_db2cdc.cdc.job import ApplySettings, Isolation, Watermarking
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.mode import CUSTOM, MODES, OLD_NAMES, CustomMode, Snapshotter, configured
from airflow_provider_db2cdc.cdc.override import check_overrides
from airflow_provider_db2cdc.cdc.selection import SNAPSHOT_INCLUDE, Selection, check_patterns
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.given_properties import flatten, read_value, sort_given
from airflow_provider_db2cdc.import_path import load_class
from airflow_provider_db2cdc.properties import USED
from airflow_provider_db2cdc.property_value import (
    WORD,
    Count,
    CountOrZero,
    Password,
    PlainText,
    Seconds,
    SecondsOrZero,
)

SNAPSHOTTER_METHODS = [name for name in vars(Snapshotter) if not name.startswith("_")]
SnapshotMode = Annotated[
    Literal["initial", "always", "initial_only", "no_data", "recovery", "when_needed", "configuration_based", "custom"],
    BeforeValidator(lambda name: OLD_NAMES.get(name, name) if isinstance(name, str) else name),
    WORD,
]


Unshown = Annotated[Mapping[str, PlainText], Field(repr=False)]
"""Properties among which secrets may be: Airflow keeps a configuration's text where a task's arguments are shown."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class DatabaseConfig(_Frozen):
    """How the command line reaches Db2; Airflow takes a connection instead."""

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
    """How the command line starts Spark; Airflow takes a connection instead."""

    master: str = "local[*]"
    jars: Path | None = None
    packages: tuple[str, ...] = ()
    conf: Unshown = Field(default_factory=dict)
    binary: str = ""


class PipelineConfig(_Frozen):
    """What one pipeline carries, from where and how.

    `server_name` is Debezium's topic.prefix. `ignored` names properties that have no meaning here, each with the
    reason. `target` is a path or a catalog's schema (cdc.layout).
    """

    pipeline: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    target: str
    server_name: str = ""
    asn_schema: str = "ASNCDC"
    selection: Selection = Field(default_factory=Selection)
    snapshot_mode: SnapshotMode = "initial"
    snapshot_data: bool = False
    snapshot_stream: bool = False
    snapshot_on_data_error: bool = False
    snapshot_custom: str = ""
    snapshot_include: tuple[str, ...] = ()
    snapshot_overridden: tuple[str, ...] = ()
    snapshot_overrides: Mapping[str, str] = Field(default_factory=dict)
    snapshot_isolation: Annotated[Isolation, WORD] = "read_committed"
    snapshot_fetch_rows: CountOrZero = 10_000
    query_fetch_rows: CountOrZero = 10_000
    max_rows_per_batch: Count = 1_000_000
    capture_stale_after_s: Seconds = 900.0
    offsets_max_age_s: Seconds = 86_400.0
    accept_update_rows: bool = False
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
    signal_table: str = ""
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

    @model_validator(mode="before")
    @classmethod
    def _name_server(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and not data.get("server_name"):
            return {**data, "server_name": data.get("pipeline", "")}
        return data

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        Layout(self.target)
        if self.signal_table:
            parse_table(self.signal_table, "signal.data.collection")
        check_patterns(SNAPSHOT_INCLUDE, self.snapshot_include)
        check_overrides(self.snapshot_overridden, self.snapshot_overrides)
        return self

    @property
    def snapshotter(self) -> Snapshotter:
        """What decides about snapshots.

        :raises ConfigurationError: the custom class cannot be had.
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
        """What the Spark job is told of this configuration."""
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
            recover_offsets=self.snapshotter.recover_offset(),
            high_mark_timeout_s=self.high_mark_timeout_s,
            accept_update_rows=self.accept_update_rows,
            streaming=self.snapshotter.stream(),
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Return the configuration that dotted or snake_case names give; a connector's JSON may be given as it is.

        :raises ConfigurationError: unknown, unsupported, contradicting or malformed properties, all named at once.
        """
        given, ignored, problems = sort_given(flatten(properties))
        if problems:
            raise ConfigurationError("; ".join(problems), "Correct or remove them.")
        data: dict[str, Any] = {"ignored": ignored}
        for name, (item, value) in given.items():
            inside = [name[len(item.name) - 1 :]] if item.name.endswith("*") else []
            _place(data, [*item.field.split("."), *inside], read_value(item, value))
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ConfigurationError(_explain(error), "Correct them.") from None


def load_snapshotter(path: str) -> Snapshotter:
    """Return an object of the class that `module:Class` names.

    :raises ConfigurationError: there is none, it cannot be made without arguments, or it lacks a method.
    """
    name, hint = CUSTOM, "Name a class as module:Class; cdc.mode.Snapshotter says what it needs."
    kind = load_class(path, name, hint)
    try:
        found: Snapshotter = kind()
    except Exception as error:
        raise ConfigurationError(f"{name}: {path!r} cannot be made without arguments ({error})", hint) from error
    if lacking := [method for method in SNAPSHOTTER_METHODS if not callable(getattr(found, method, None))]:
        raise ConfigurationError(f"{name}: {path!r} has no method {lacking[0]}", hint)
    return CustomMode(path, found)


def _place(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        data = data.setdefault(part, {})
    if value is not None:
        data[path[-1]] = value


def _explain(error: ValidationError) -> str:
    names = {item.field: item.name for item in USED}
    lines = []
    for problem in error.errors(include_input=False, include_url=False):
        field = ".".join(map(str, problem["loc"]))
        lines.append(f"{names.get(field) or _within(field, names)}: {problem['msg']}")
    return "; ".join(lines)


def _within(field: str, names: Mapping[str, str]) -> str:
    """Return a field of a mapping as the property that it is given by, which has the field's own name in it."""
    outer = next((part for part in names if field.startswith(f"{part}.")), None)
    return field if outer is None else f"{names[outer].removesuffix('.*')}{field.removeprefix(outer)}"
