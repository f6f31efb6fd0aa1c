"""Handing a tick to Spark: what spark-submit is told, the zip of this package's Spark side, and running it."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_db2cdc.errors import ConfigurationError

PACKAGE = Path(__file__).resolve().parents[1]
LOG4J = Path(__file__).resolve().with_name("log4j2.properties")


def application_path(job: str = "apply") -> Path:
    """Return the entry script that spark-submit runs: carried in an installed wheel, beside the package in a checkout.

    :raises ConfigurationError: the installation is not whole.
    """
    for folder in (PACKAGE / "spark_jobs", PACKAGE.parent / "spark_jobs"):
        if (path := folder / f"{job}.py").is_file():
            return path
    raise ConfigurationError(f"spark_jobs/{job}.py is missing from the installation", "Install the provider again.")
