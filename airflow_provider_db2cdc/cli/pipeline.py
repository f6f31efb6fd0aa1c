"""What a configuration file stands for: the source to read and the store of offsets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Protocol

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.offset.offset import Offset, OffsetStore
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.screen import note
from airflow_provider_db2cdc.config.pipeline import DatabaseConfig, PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.offsets.file import FileOffsetStore, local_folder, offsets_path
from airflow_provider_db2cdc.source.address import Db2Address, Tls
from airflow_provider_db2cdc.source.connection import Source


def need_database(config: PipelineConfig) -> DatabaseConfig:
    """Return the configuration's database.

    :raises ConfigurationError: it names none.
    """
    if config.database is None:
        raise ConfigurationError(
            "the configuration names no database",
            "Set database.hostname, database.dbname and database.user, and $DB2CDC_PASSWORD.",
        )
    return config.database


def open_source(config: PipelineConfig) -> Source:
    """Return the source, connected at its first statement."""
    database = need_database(config)
    certificate = str(database.ssl_certificate or "")
    return Source(
        Db2Address(
            host=database.hostname,
            database=database.dbname,
            user=database.user,
            password=database.password.get_secret_value(),
            port=database.port,
            tls=Tls(certificate) if database.ssl or certificate else None,
            options=database.options,
            jdbc_options=database.jdbc_options,
        )
    )


def open_store(config: PipelineConfig) -> FileOffsetStore:
    """Return the command line's offset store."""
    return FileOffsetStore(offsets_path(config.target, config.offsets_file))


class KeptOffsets(OffsetStore, Protocol):
    """Offsets that a person looks at and repairs; `where` names the place."""

    @property
    def where(self) -> str:
        """How a message names the place."""

    def all(self) -> Mapping[TableId, Offset]:
        """Return every table's offset."""

    def reset(self, offset: Offset) -> None:
        """Keep `offset` even where it moves back."""

    def remove(self, table: TableId) -> Offset | None:
        """Forget a table's offset and return it."""


def open_kept(config: PipelineConfig, airflow: bool) -> KeptOffsets:
    """Return the offsets as the command line keeps them, or as Airflow does, and say which.

    :raises ConfigurationError: Airflow is not installed here.
    """
    variables = f"Airflow's Variables db2cdc.{config.pipeline}.<SCHEMA>.<TABLE>"
    if airflow:
        note(f"offsets: {variables}")
        return _metadata(config.pipeline)
    store = open_store(config)
    if kept_elsewhere(config):
        note(
            f"warning: {store.where} is not there, but ticks have written the target: if Airflow runs this pipeline, "
            f"its offsets are {variables}; --airflow looks at those"
        )
    else:
        note(f"offsets: {store.where} (--airflow looks at {variables})")
    return store


def kept_elsewhere(config: PipelineConfig) -> bool:
    """Whether ticks have written a local target whose offsets are not in the file: they are Airflow's, or lost."""
    folder = local_folder(config.target)
    if folder is None or open_store(config).path.exists():
        return False
    return Path(Layout(f"{folder}/").internal("commits").name).is_dir()


def _metadata(pipeline: str) -> KeptOffsets:
    try:
        # Airflow sets up logging when it is imported: on standard output, where a command's result goes. In 3.1 the
        # libraries that it loads for its database then tell of themselves.
        logging.disable(logging.INFO)
        with redirect_stdout(sys.stderr):
            from airflow_provider_db2cdc.offsets.metadata import MetadataOffsetStore
    except ImportError as error:
        raise ConfigurationError(
            f"Airflow cannot be loaded here ({error})", "Run it where Airflow is installed, as its scheduler does."
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
    return MetadataOffsetStore(pipeline)
