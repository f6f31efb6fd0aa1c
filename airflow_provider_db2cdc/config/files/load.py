"""A pipeline's configuration as a file, for the command line and the shipped DAGs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cdc.document import PASSWORD_ENV, USER_ENV
from airflow_provider_db2cdc.config.files.text import parse_text
from airflow_provider_db2cdc.config.parsing import flatten, resolve_used
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.config.properties import (
    ALIASES,
    OF_THE_CONNECTION,
    find_property,
    is_address,
    is_driver_option,
)
from airflow_provider_db2cdc.errors import ConfigurationError


def load_config(
    path: str | Path, environ: Mapping[str, str] | None = None, with_database: bool = True
) -> PipelineConfig:
    """Read a configuration file (config.files.text).

    Paths in the file are relative to it, and `${env:NAME}` stands for an environment variable. Without a user or
    password in the file, they come from DB2CDC_USER and DB2CDC_PASSWORD. Without `with_database` the properties of the
    database are skipped and not resolved. Airflow has a connection instead, and its machines may not have the
    password. Drivers' options among them are then listed in `ignored`, so that their loss is reported.

    :raises ConfigurationError: when the file cannot be read, or has mistakes. It lists all of them.
    """
    environ = os.environ if environ is None else environ
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}", "Name the file with --config.") from error
    data, twice = parse_text(text, file)
    whole, contradicting = flatten(data)
    given = {name: value for name, value in whole.items() if with_database or not is_address(name)}
    flat, unresolved = resolve_used(given, environ)
    completed = _complete(_anchor(flat, file.parent), unresolved, environ)
    config = PipelineConfig.from_flat(completed, {**contradicting, **twice, **unresolved})
    lost = {name: OF_THE_CONNECTION for name in whole if name not in given and is_driver_option(name)}
    return config.model_copy(update={"ignored": {**config.ignored, **lost}})


def _anchor(properties: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make paths absolute. They are relative to the file's folder, not to the folder in which the command runs."""

    def anchored(name: str, value: Any) -> Any:
        item = find_property(name)
        is_path = item is not None and item.form == "path" and isinstance(value, str) and ":" not in value
        if not is_path or (item is not None and item.name == "target" and "/" not in value):
            return value
        return str((folder / Path(value).expanduser()).resolve())

    return {name: anchored(name, value) for name, value in properties.items()}


def _complete(properties: dict[str, Any], unresolved: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    given = [*(name for name, value in properties.items() if value is not None), *unresolved]
    names = {ALIASES.get(name, name).replace("_", ".") for name in given}
    if any(name.startswith("database.") for name in names):
        for name, variable in (("database.user", USER_ENV), ("database.password", PASSWORD_ENV)):
            if name not in names and variable in environ:
                properties[name] = environ[variable]
    return properties
