"""The forms of a connector's configuration, and the properties inside each.

- Kafka Connect: `{"name": ..., "config": {...}}`, and its REST answer, which adds `tasks` and `type`.
- Strimzi: a KafkaConnector with `metadata.name`, `spec.class`, `spec.tasksMax` and `spec.config`.
- Debezium Server: names that begin with `debezium.source.`, `debezium.transforms` or `debezium.predicates`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STRIMZI_KIND = "KafkaConnector"
STRIMZI_NAMES = {"class": "connector.class", "tasksMax": "tasks.max"}
SERVER = "debezium."
SERVER_SOURCE = "debezium.source."
SERVER_PARTS = ("transforms", "predicates")


def connector_parts(properties: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the mappings that together hold the properties: those inside a connector, and those next to it."""
    if properties.get("kind") == STRIMZI_KIND:
        return _strimzi_parts(properties)
    inner = properties.get("config")
    if not isinstance(inner, Mapping):
        return (properties,)
    return inner, {name: value for name, value in properties.items() if name != "config"}


def plain_name(name: str) -> str:
    """Return the connector's name of a property of Debezium Server. Other names stay as they are."""
    if name.startswith(SERVER_SOURCE):
        return name.removeprefix(SERVER_SOURCE)
    rest = name.removeprefix(SERVER)
    return rest if rest.split(".")[0] in SERVER_PARTS else name


def _strimzi_parts(properties: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    spec, metadata = _mapping(properties, "spec"), _mapping(properties, "metadata")
    config = _mapping(spec, "config")
    settings = {STRIMZI_NAMES.get(name, f"spec.{name}"): value for name, value in spec.items() if name != "config"}
    named = {} if "name" in config or "name" not in metadata else {"name": metadata["name"]}
    about = {"apiVersion", "kind", "metadata", "spec", "status"}
    return config, settings, named, {name: value for name, value in properties.items() if name not in about}


def _mapping(properties: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = properties.get(name)
    return value if isinstance(value, Mapping) else {}
