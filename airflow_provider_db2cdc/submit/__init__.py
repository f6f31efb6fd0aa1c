"""Submission of a tick to Spark: the settings of spark-submit, the zip of this package's Spark side, and the run."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_db2cdc.errors import ConfigurationError

PACKAGE = Path(__file__).resolve().parents[1]
LOG4J = Path(__file__).resolve().with_name("log4j2.properties")


def application_path(job: str = "apply") -> Path:
    """Return the path of the entry script that spark-submit runs.

    An installed wheel has it inside the package, and a checkout next to it.

    :raises ConfigurationError: when the installation lacks the script.
    """
    for folder in (PACKAGE / "spark_jobs", PACKAGE.parent / "spark_jobs"):
        if (path := folder / f"{job}.py").is_file():
            return path
    raise ConfigurationError(f"spark_jobs/{job}.py is missing from the installation", "Install the provider again.")
