"""What the master of Spark says: whether it is one machine, and whether a job can have it at all."""

from __future__ import annotations

from airflow_provider_db2cdc.errors import ConfigurationError

CONNECT_SCHEMES = ("sc:", "spark_connect:")
"""The scheme of Spark Connect, and the type of its connections in Airflow."""


def is_one_machine(master: str) -> bool:
    """Return whether Spark's driver and executors run on one machine."""
    return master.startswith("local")


def check_master(master: str, subject: str) -> None:
    """Check that `master` is not a server of Spark Connect. Its address may hold a token, so no text shows it.

    :raises ConfigurationError: when it is one.
    """
    if master.strip().lower().startswith(CONNECT_SCHEMES):
        raise connect_error(f"{subject} is a Spark Connect server (sc://), which")


def connect_error(subject: str) -> ConfigurationError:
    """Return the error for Spark Connect."""
    return ConfigurationError(
        f"{subject} gives a job no JVM: JDBC and Delta's transaction ids are used there",
        "Name the cluster itself: yarn, spark://host:7077, k8s://https://host or local[N].",
    )
