"""Kafka Connect's transforms of a connector: ignored or refused, by what they do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ROUTES = "it chooses Kafka topics; each table has its own Delta table"
CASE = "it changes the case of names, which Delta ignores"
NO_TOPIC = "it concerns Kafka schemas and topics; there are none"
STATE = "the state table holds what it makes: the newest row of each key"

WITHOUT_MEANING: Mapping[str, str] = {
    "org.apache.kafka.connect.transforms.RegexRouter": ROUTES,
    "org.apache.kafka.connect.transforms.TimestampRouter": ROUTES,
    "io.confluent.connect.transforms.MessageTimestampRouter": ROUTES,
    "io.confluent.connect.transforms.ExtractTopic": ROUTES,
    "io.debezium.transforms.ByLogicalTableRouter": ROUTES,
    "io.debezium.transforms.ContentBasedRouter": ROUTES,
    "io.debezium.transforms.partitions.PartitionRouting": ROUTES,
    "com.github.jcustenborder.kafka.connect.transform.common.ChangeTopicCase": CASE,
    "com.github.jcustenborder.kafka.connect.transform.common.ChangeCase": CASE,
    "org.apache.kafka.connect.transforms.SetSchemaMetadata": NO_TOPIC,
    "io.debezium.transforms.SchemaChangeEventFilter": NO_TOPIC,
}
"""Transforms that change no row of a Delta table, with the reason."""

UNWRAPS = frozenset({"io.debezium.transforms.ExtractNewRecordState", "io.debezium.transforms.UnwrapFromEnvelope"})
DELETED = "a deleted row leaves the state table, and the change log keeps the delete"
IN_THE_LOG = "the change log has op, source and ts_ms as columns"
UNWRAP_SETTINGS: Mapping[str, str] = {
    "drop.tombstones": "the state table has no tombstones; tombstones.on.delete sets those of the change log",
    "drop.deletes": DELETED,
    "delete.handling.mode": DELETED,
    "delete.tombstone.handling.mode": DELETED,
    "operation.header": IN_THE_LOG,
    "add.fields": IN_THE_LOG,
    "add.fields.prefix": IN_THE_LOG,
    "add.headers": IN_THE_LOG,
    "add.headers.prefix": IN_THE_LOG,
    "add.source.fields": IN_THE_LOG,
    "route.by.field": ROUTES,
    "replace.null.with.default": "a null stays a null",
}
"""Settings of ExtractNewRecordState, each with the reason why it has no effect here."""

OF_EVERY_TRANSFORM = frozenset({"type", "predicate", "negate"})
NOT_DONE = "do it in what reads the target; nothing here changes values, drops rows or adds headers"
PREDICATES = "it only chooses what a transform is applied to"


def is_transform(name: str) -> bool:
    """Whether a property belongs to Kafka Connect's transforms or their predicates."""
    return name.split(".")[0] in ("transforms", "predicates")


def sort_transforms(properties: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the transforms that are ignored and those that are refused, each as `transforms.<alias>` with the reason.

    `properties` are `transforms`, `transforms.*`, `predicates` and `predicates.*`. A transform that `transforms` does
    not name is included, because it may be a mask whose name was forgotten.
    """
    ignored = {name: PREDICATES for name in properties if name.split(".")[0] == "predicates"}
    refused: dict[str, str] = {}
    by_alias: dict[str, dict[str, Any]] = {alias: {} for alias in _names(properties.get("transforms"))}
    for name, value in properties.items():
        start, _, inside = name.partition(".")
        if start == "transforms" and inside:
            alias, _, setting = inside.partition(".")
            by_alias.setdefault(alias, {})[setting] = value
    for alias, settings in by_alias.items():
        is_ignored, reason = _answer(settings)
        (ignored if is_ignored else refused)[f"transforms.{alias}"] = reason
    return ignored, refused


def _names(value: Any) -> list[str]:
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    return [text for text in (str(name).strip() for name in names if name is not None) if text]


def _answer(settings: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether a transform with these settings is ignored, and the reason."""
    kind = str(settings.get("type") or "").strip()
    if not kind:
        return False, "give its type; Kafka Connect does not start without one, either"
    whole = kind.split("$")[0]  # RegexRouter has one class, others have Name$Key and Name$Value
    title = whole.rpartition(".")[2]
    if whole in WITHOUT_MEANING:
        return True, f"{title}: {WITHOUT_MEANING[whole]}"
    if whole not in UNWRAPS:
        return False, f"{title} is not supported: {NOT_DONE}"
    if drops := sorted(name for name in settings if name.startswith("drop.fields.")):
        return False, f"{title} is not supported with {drops[0]}: exclude columns with column.exclude.list"
    return True, f"{title}: {'; '.join((STATE, *_settings_of(settings)))}"


def _settings_of(settings: Iterable[str]) -> list[str]:
    """Return the reasons why settings of ExtractNewRecordState have no effect, each with its settings."""
    by_reason: dict[str, list[str]] = {}
    for name in sorted(set(settings) - OF_EVERY_TRANSFORM):
        by_reason.setdefault(UNWRAP_SETTINGS.get(name, "it has no such setting"), []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
