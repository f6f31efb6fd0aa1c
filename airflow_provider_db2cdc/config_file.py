"""A pipeline's configuration as a file, for the command line and the shipped DAGs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from airflow_provider_db2cdc.cdc.job import PASSWORD_ENV, USER_ENV
from airflow_provider_db2cdc.config import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.given_properties import flatten
from airflow_provider_db2cdc.properties import ALIASES, OF_THE_CONNECTION, find_property, is_address, is_driver_option

MERGE = "tag:yaml.org,2002:merge"
PLACEHOLDER = re.compile(r"\$\{env:(\w+)\}")


def load_config(
    path: str | Path, environ: Mapping[str, str] | None = None, with_database: bool = True
) -> PipelineConfig:
    """Read a YAML or JSON file; paths in it are relative to it, `${env:NAME}` stands for a variable's value.

    User and password, where the file has none, come from DB2CDC_USER and DB2CDC_PASSWORD. Without `with_database` what
    the file says of the database is left out, unread: Airflow has a connection, and its machines perhaps no password.
    That drivers' options are among it stands in what is `ignored`, for nobody would miss them.

    :raises ConfigurationError: the file cannot be read, or from_properties refuses what it says.
    """
    environ = os.environ if environ is None else environ
    file = Path(path)
    try:
        data = _parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}", "Name the file with --config.") from error
    except (yaml.YAMLError, ValueError) as error:  # a date like 2026-13-45 is a ValueError
        place = getattr(error, "problem_mark", None)
        where = f" at line {place.line + 1}" if place else ""
        raise ConfigurationError(f"{file} is neither YAML nor JSON{where}", "Correct it.") from None
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{file} holds no properties", "Write one `name: value` a line.")
    whole = flatten(data)
    given = {name: value for name, value in whole.items() if with_database or not is_address(name)}
    flat = {name: _substitute(name, value, environ) for name, value in given.items()}
    config = PipelineConfig.from_properties(_complete(_anchor(flat, file.parent), environ))
    lost = {name: OF_THE_CONNECTION for name in whole if name not in given and is_driver_option(name)}
    return config.model_copy(update={"ignored": {**config.ignored, **lost}})


def _parse(text: str) -> Any:
    """Return what YAML or JSON says; of a name that stands twice YAML's own reader would take the later value.

    :raises ConfigurationError: a name stands twice, and the two contradict each other.
    """
    loader = yaml.SafeLoader(text)
    try:
        document = loader.get_single_node()
        if document is None:
            return None
        contradicting = [
            f"{name} is given twice (lines {first.start_mark.line + 1} and {again.start_mark.line + 1}), and the two "
            "contradict each other"
            for name, first, again in list(_given_twice(document))
            if loader.construct_document(first) != loader.construct_document(again)
        ]
        if contradicting:
            raise ConfigurationError("; ".join(contradicting), "Leave one.")
        return loader.construct_document(document)
    finally:
        loader.dispose()


def _given_twice(node: yaml.Node, prefix: str = "") -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yield each name that a mapping has twice, with both values; what `<<` merges into it is its to override."""
    if not isinstance(node, yaml.MappingNode):
        return
    found: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if key.tag == MERGE or not isinstance(key, yaml.ScalarNode):
            continue
        name = f"{prefix}{key.value}"
        if name in found:
            yield name, found[name], value
        found[name] = value
        yield from _given_twice(value, f"{name}.")


def _substitute(name: str, value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _substitute(f"{name}.{key}", inner, environ) for key, inner in value.items()}
    if isinstance(value, list):
        return [_substitute(name, inner, environ) for inner in value]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise ConfigurationError(f"{name} needs the environment variable {match[1]}, which is not set", "Set it.")
        return environ[match[1]]

    return PLACEHOLDER.sub(replaced, value)


def _anchor(properties: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make paths absolute: from the file's folder, not from wherever the command runs."""

    def anchored(name: str, value: Any) -> Any:
        item = find_property(name)
        is_path = item is not None and item.form == "path" and isinstance(value, str) and ":" not in value
        if not is_path or (item is not None and item.name == "target" and "/" not in value):
            return value
        return str((folder / Path(value).expanduser()).resolve())

    return {name: anchored(name, value) for name, value in properties.items()}


def _complete(properties: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    names = {ALIASES.get(name, name).replace("_", ".") for name in properties}
    if any(name.startswith("database.") for name in names):
        for name, variable in (("database.user", USER_ENV), ("database.password", PASSWORD_ENV)):
            if name not in names and variable in environ:
                properties[name] = environ[variable]
    return properties
