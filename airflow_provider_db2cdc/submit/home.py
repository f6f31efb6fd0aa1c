"""The spark-submit to call, and the environment that it needs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_provider_db2cdc.cdc.spark_master import connect_error
from airflow_provider_db2cdc.errors import ConfigurationError

PANDAS_WARNING = "ignore::FutureWarning:pyspark.testing.utils"
"""A filter for pyspark's warning about pandas 3, which this provider does not use. Every tick would show it."""

UTF_8_LOCALE = {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8"}
"""The locale of Java and Python. In others (C, Latin-1, Turkish) characters of names are changed or lost."""

CONNECT_VARIABLES = {"SPARK_REMOTE": "", "SPARK_API_MODE": "classic", "SPARK_CONNECT_MODE": "0"}
"""Variables by which spark-submit takes Spark Connect, each with the value that does not ask for it."""


def spark_home() -> Path:
    """Return the folder of the installed pyspark, which is a complete Spark.

    :raises ConfigurationError: when pyspark is missing, or is only the client.
    """
    pyspark = importlib.util.find_spec("pyspark")
    for folder in (pyspark.submodule_search_locations or []) if pyspark else []:
        if (Path(folder) / "bin" / "spark-submit").is_file():
            return Path(folder)
    raise ConfigurationError(
        "no spark-submit is installed here (pyspark-client has none)",
        "Install airflow-provider-db2cdc[spark], or name a spark-submit with spark.binary.",
    )


def spark_binary(binary: str = "") -> str:
    """Return the spark-submit to call: `binary`, or the installed pyspark's."""
    return binary or str(spark_home() / "bin" / "spark-submit")


def jars_of_spark(binary: str) -> list[str]:
    """Return the names of the jars of a Spark installation. That of a cluster may have Delta among them."""
    command = shutil.which(binary)
    return [path.name for path in Path(command).resolve().parents[1].glob("jars/*.jar")] if command else []


def spark_environment(
    binary: str = "", master: str = "local[*]", environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment in which spark-submit finds its home, this Python and a UTF-8 locale.

    Without PYSPARK_PYTHON a session starts its workers with the first `python3` on PATH.

    :raises ConfigurationError: when the environment asks for Spark Connect.
    """
    env = {**(os.environ if environ is None else environ), **UTF_8_LOCALE}
    for name, classic in CONNECT_VARIABLES.items():
        if env.get(name, classic).lower() != classic:
            raise connect_error(f"the variable {name} asks for Spark Connect, which")
    if not binary:
        env["SPARK_HOME"] = str(spark_home())
    env.setdefault("PYSPARK_PYTHON", sys.executable)
    env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    env.setdefault("PYTHONWARNINGS", PANDAS_WARNING)
    if master.startswith("local"):
        env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return env
