"""Where Spark is: the spark-submit to call and the environment that it needs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_provider_db2cdc.errors import ConfigurationError

PANDAS_WARNING = "ignore::FutureWarning:pyspark.testing.utils"
"""Pyspark's warning about pandas 3, which this provider does not use; it would stand in every tick's output."""

UTF_8_LOCALE = {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8"}
"""What Java and Python read and write in: elsewhere (C, Latin-1, Turkish) names turn into other characters or none."""


def spark_home() -> Path:
    """Return the installed pyspark's folder, which is a whole Spark.

    :raises ConfigurationError: pyspark is missing, or is the client alone.
    """
    found = importlib.util.find_spec("pyspark")
    for place in (found.submodule_search_locations or []) if found else []:
        if (Path(place) / "bin" / "spark-submit").is_file():
            return Path(place)
    raise ConfigurationError(
        "no spark-submit is installed here (pyspark-client has none)",
        "Install airflow-provider-db2cdc[spark], or name a spark-submit with spark.binary.",
    )


def spark_binary(binary: str = "") -> str:
    """Return the spark-submit to call: `binary`, or the installed pyspark's."""
    return binary or str(spark_home() / "bin" / "spark-submit")


def jars_of_spark(binary: str) -> list[str]:
    """Return the names of the jars that a Spark has by itself; a cluster's own may have Delta among them."""
    found = shutil.which(binary)
    return [path.name for path in Path(found).resolve().parents[1].glob("jars/*.jar")] if found else []


def spark_environment(
    binary: str = "", master: str = "local[*]", environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment in which spark-submit finds its own home, this very Python and a locale of UTF-8.

    Without PYSPARK_PYTHON a session starts workers with whatever `python3` is first on PATH.
    """
    env = {**(os.environ if environ is None else environ), **UTF_8_LOCALE}
    if not binary:
        env["SPARK_HOME"] = str(spark_home())
    env.setdefault("PYSPARK_PYTHON", sys.executable)
    env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    env.setdefault("PYTHONWARNINGS", PANDAS_WARNING)
    if master.startswith("local"):
        env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return env
