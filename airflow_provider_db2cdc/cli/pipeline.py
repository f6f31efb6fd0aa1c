"""The source and the store of offsets that belong to a configuration."""

from __future__ import annotations

import logging
import sys
from contextlib import redirect_stdout
from pathlib import Path

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cli.screen import note
from airflow_provider_db2cdc.config.pipeline import DatabaseConfig, PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.offsets.file import FileOffsetStore, local_folder, offsets_path
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore
from airflow_provider_db2cdc.source.address import Db2Address, Tls
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.submit.runner import Login


def need_database(config: PipelineConfig) -> DatabaseConfig:
    """Return the configuration's database.

    :raises ConfigurationError: when it names none.
    """
    if config.database is None:
        raise ConfigurationError(
            "the configuration names no database",
            "Set database.hostname, database.dbname and database.user, and $DB2CDC_PASSWORD.",
        )
    return config.database


def login(config: PipelineConfig) -> Login:
    """Return the user and the password of the configuration's database."""
    database = need_database(config)
    return Login(database.user, database.password.get_secret_value())


def open_source(config: PipelineConfig) -> Source:
    """Return the source. It connects at its first statement."""
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


def open_kept(config: PipelineConfig, airflow: bool) -> KeyedOffsetStore:
    """Return the store of the command line, or with `airflow` that of Airflow, and print which one it is.

    :raises ConfigurationError: when Airflow is not installed here.
    """
    variables = f"Airflow's Variables db2cdc.{config.pipeline}~offsets and ~requests"
    if airflow:
        note(f"offsets: {variables}")
        return _metadata(config.pipeline)
    store = open_store(config)
    if kept_elsewhere(config):
        note(
            f"warning: {store.where} does not exist, but ticks have written the target. If Airflow runs this pipeline, "
            f"its offsets are {variables}; --airflow looks at those"
        )
    else:
        note(f"offsets: {store.where} (--airflow looks at {variables})")
    return store


def kept_elsewhere(config: PipelineConfig) -> bool:
    """Whether ticks have written a local target, but its file of offsets does not exist.

    The offsets are then in Airflow, or lost.
    """
    folder = local_folder(config.target)
    if folder is None or open_store(config).path.exists():
        return False
    return Path(Layout(f"{folder}/").internal("commits").name).is_dir()


def _metadata(pipeline: str) -> KeyedOffsetStore:
    try:
        # Airflow sets up logging when it is imported, to standard output, where a command's result goes. In 3.1 the
        # libraries of its database then log too.
        logging.disable(logging.INFO)
        with redirect_stdout(sys.stderr):
            from airflow_provider_db2cdc.offsets.metadata import MetadataVariables
            from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore
    except ImportError as error:
        raise ConfigurationError(
            f"Airflow cannot be loaded here ({error})", "Run it where Airflow is installed, as its scheduler does."
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
    return VariableOffsetStore(pipeline, MetadataVariables())
