"""What a configuration file stands for: the source to read and the store of offsets."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cli.screen import note
from airflow_provider_db2cdc.config import DatabaseConfig, PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.address import Db2Address, Tls
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.offset_file import FileOffsetStore, local_folder, offsets_path


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


def kept_elsewhere(config: PipelineConfig, store: FileOffsetStore) -> bool:
    """Whether ticks have written a local target whose offsets are not in the file: they are Airflow's, or lost."""
    folder = local_folder(config.target)
    if folder is None or store.path.exists():
        return False
    return Path(Layout(f"{folder}/").internal("commits").name).is_dir()


def tell_store(config: PipelineConfig, store: FileOffsetStore) -> None:
    """Say which file is looked at, for a pipeline that Airflow runs has its offsets elsewhere."""
    variables = f"Airflow's Variables db2cdc.{config.pipeline}.<SCHEMA>.<TABLE>"
    if kept_elsewhere(config, store):
        note(
            f"warning: {store.path} is not there, but ticks have written the target: if Airflow runs this pipeline, "
            f"its offsets are {variables}, and what is shown here knows nothing of them"
        )
    else:
        note(f"offsets: {store.path} (of a pipeline that Airflow runs they are {variables})")
