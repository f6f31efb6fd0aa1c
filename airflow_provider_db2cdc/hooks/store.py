"""The login to the object store of the target, from an Airflow connection."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.hooks.db2cdc import missing_connection

CONNECTION_TYPE = "aws"
SESSION_TOKEN = "aws_session_token"
ROLES = ("role_arn", "profile_name", "assume_role_method")
"""Extras that ask for another way to log in. Spark has its own settings for those."""


def store_login(conn_id: str) -> dict[str, str]:
    """Return the environment variables by which Spark logs in to S3: key, secret and session token.

    Spark puts them into the configuration that it sends to its executors.

    :raises ConfigurationError: when the connection is missing, has another type, or lacks the key or the secret.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise missing_connection(conn_id) from error
    if connection.conn_type != CONNECTION_TYPE:
        raise ConfigurationError(
            f"connection {conn_id!r} has type {connection.conn_type!r}, expected {CONNECTION_TYPE!r}",
            "Give a connection of Amazon Web Services.",
        )
    extra = connection.extra_dejson
    if others := [name for name in ROLES if extra.get(name)]:
        raise ConfigurationError(
            f"connection {conn_id!r} has {others[0]}, which Spark does not read from it",
            "Set fs.s3a.aws.credentials.provider and what that class needs in spark.conf, without store_conn_id.",
        )
    if not (connection.login and connection.password):
        raise ConfigurationError(
            f"connection {conn_id!r} has no access key or no secret", "Give both as its login and password."
        )
    token = str(extra.get(SESSION_TOKEN) or "")
    login = {"AWS_ACCESS_KEY_ID": connection.login, "AWS_SECRET_ACCESS_KEY": connection.password}
    return {**login, "AWS_SESSION_TOKEN": token} if token else login
