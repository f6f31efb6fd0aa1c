"""What a configuration file stands for: the source to read and the store of offsets."""

from __future__ import annotations

from airflow_provider_db2cdc.config import DatabaseConfig, PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.address import Db2Address, Tls
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.offset_file import FileOffsetStore, offsets_path


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
