"""The jars that Spark and the sandbox need, resolved once by Spark's own Ivy and kept in a folder.

Naming the files in spark.jars saves about two seconds at every start that spark.jars.packages would take, and makes a
start need no network. Each file is checked against the hash in JARS, so a folder holds what was tested or nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Literal

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.submit.bundle import cache_folder
from airflow_provider_db2cdc.submit.child import OnLine, run_child
from airflow_provider_db2cdc.submit.home import spark_binary, spark_environment

Part = Literal["spark", "sandbox"]
Resolve = Callable[[Sequence[str], Path], Iterable[Path]]

SPARK_VERSION = "4.2.0"
DELTA_VERSION = "4.4.0"
JDBC_DRIVER = "com.ibm.db2:jcc:12.1.3.0"
DERBY_VERSION = "10.16.1.1"
DERBY = tuple(f"org.apache.derby:{name}:{DERBY_VERSION}" for name in ("derby", "derbyclient", "derbynet", "derbytools"))


@dataclass(frozen=True)
class Jar:
    """One file as Ivy names it, and the hash of the one that was tested."""

    part: Part
    name: str
    sha256: str


JARS = (
    Jar("spark", "com.ibm.db2_jcc-12.1.3.0.jar", "6380b30ba7ce3262c775720066dbd2a3abc14dd0212619068e589866894029c7"),
    Jar(
        "spark",
        "io.delta_delta-kernel-api-4.4.0.jar",
        "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    ),
    Jar(
        "spark",
        "io.delta_delta-kernel-defaults-4.4.0.jar",
        "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    ),
    Jar(
        "spark",
        "io.delta_delta-kernel-unitycatalog-4.4.0.jar",
        "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    ),
    Jar(
        "spark",
        "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "spark", "io.delta_delta-storage-4.4.0.jar", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"
    ),
    Jar(
        "spark",
        "io.unitycatalog_unitycatalog-client-0.6.0.jar",
        "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    ),
    Jar(
        "spark",
        "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
        "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
    ),
    Jar(
        "sandbox",
        "org.apache.derby_derby-10.16.1.1.jar",
        "ede804cb04e871d7c52d2414e952ab939f9ef243abb7bd0ce7dbeb6e1e28bd0b",
    ),
    Jar(
        "sandbox",
        "org.apache.derby_derbyclient-10.16.1.1.jar",
        "b7243184b1df01b946eaf89eb904ed724d1f7493eb7467e85f4c6ffb4a09142b",
    ),
    Jar(
        "sandbox",
        "org.apache.derby_derbynet-10.16.1.1.jar",
        "e86abd0ea3fadfe8e0f7565049c59b035b4cf7234c056bfe678d5fdfed894382",
    ),
    Jar(
        "sandbox",
        "org.apache.derby_derbyshared-10.16.1.1.jar",
        "27d4be683a45f6c15940167277ce39bb7e26b9f6dc0bc05efbcf813cac5d2b8f",
    ),
    Jar(
        "sandbox",
        "org.apache.derby_derbytools-10.16.1.1.jar",
        "db052f92508e966ee8b0c5c9eca84cb11cbf0b0d78e608dc89340d4bb6c07314",
    ),
)


def default_folder() -> Path:
    """Return where `db2cdc jars` puts jars when it is told no folder: $DB2CDC_JARS, or the user's cache."""
    chosen = os.environ.get("DB2CDC_JARS")
    return Path(chosen) if chosen else cache_folder() / "jars"


def spark_packages(spark: str = "", delta: str = "") -> tuple[str, ...]:
    """Return the Maven coordinates for these versions, by default the installed ones (else the tested ones)."""
    spark = spark or _installed("pyspark", SPARK_VERSION)
    delta = delta or _installed("delta-spark", DELTA_VERSION)
    line = ".".join(spark.split(".")[:2])
    # Delta names its artifact after the Spark line since Spark 4.1.
    artifact = "delta-spark_2.13" if line == "4.0" else f"delta-spark_{line}_2.13"
    return (f"io.delta:{artifact}:{delta}", JDBC_DRIVER)


def spark_classpath(folder: Path | None, packages: Sequence[str] = ()) -> tuple[list[Path], list[str]]:
    """Return the jar files and the Maven coordinates that a job needs; one of the two is empty.

    `packages` are taken as they are. Otherwise the folder's jars serve, or without a folder those that `db2cdc jars`
    put into its default place, or when there are none the coordinates of the installed versions.

    :raises ConfigurationError: the folder has no jars.
    """
    if packages:
        return [], list(packages)
    chosen = folder or default_folder()
    place = chosen / "spark" if (chosen / "spark").is_dir() else chosen
    jars = sorted(place.glob("*.jar"))
    if folder and not jars:
        raise ConfigurationError(f"{folder} holds no jars", f"Fill it with `db2cdc jars --into {folder}`.")
    return jars, [] if jars else list(spark_packages())


def ensure_jars(into: Path, parts: Sequence[Part], resolve: Resolve) -> list[Path]:
    """Fill `into`/spark and `into`/sandbox with what is missing there and return the files that came.

    `resolve` fetches coordinates with all they need into a scratch folder. What Spark ships itself is left out.

    :raises ConfigurationError: a file is not the one that was tested, or could not be had.
    """
    missing = [jar for jar in JARS if jar.part in parts and not _intact(into / jar.part / jar.name, jar)]
    if not missing:
        return []
    wanted = {jar.part for jar in missing}
    coordinates = [*(_tested_packages() if "spark" in wanted else ()), *(DERBY if "sandbox" in wanted else ())]
    with tempfile.TemporaryDirectory(prefix="db2cdc-jars-") as scratch:
        found = {path.name: path for path in resolve(coordinates, Path(scratch))}
        return [_keep(found, jar, into / jar.part) for jar in missing]


def ivy_resolve(on_line: OnLine, ivy_settings: Path | None = None, binary: str = "") -> Resolve:
    """Return a resolver that lets spark-submit fetch from where its Ivy is set to; `ivy_settings` may name a mirror."""

    def resolve(coordinates: Sequence[str], scratch: Path) -> Iterable[Path]:
        nothing = scratch / "nothing.py"
        nothing.write_text("", encoding="utf-8")
        argv = [spark_binary(binary), "--conf", f"spark.jars.ivy={scratch}", "--packages", ",".join(coordinates)]
        if ivy_settings:
            argv += ["--conf", f"spark.jars.ivySettings={ivy_settings}"]
        code = run_child([*argv, str(nothing)], spark_environment(binary), on_line)
        if code:
            raise ConfigurationError(
                f"spark-submit could not resolve {', '.join(coordinates)} (exit code {code})",
                "Its output says why. Behind a mirror, name an Ivy settings file with --ivy-settings.",
            )
        return (scratch / "jars").glob("*.jar")

    return resolve


def _tested_packages() -> tuple[str, ...]:
    packages = spark_packages()
    if packages != spark_packages(SPARK_VERSION, DELTA_VERSION):
        raise ConfigurationError(
            f"jars are known for Spark {SPARK_VERSION} with Delta {DELTA_VERSION}, installed are others",
            f"Set spark.packages to {','.join(packages)}, or install pyspark=={SPARK_VERSION} and "
            f"delta-spark=={DELTA_VERSION}.",
        )
    return packages


def _keep(found: dict[str, Path], jar: Jar, folder: Path) -> Path:
    if jar.name not in found:
        raise ConfigurationError(f"{jar.name} was not among what Ivy resolved", "Is it excluded by the mirror?")
    if not _intact(found[jar.name], jar):
        raise ConfigurationError(
            f"{jar.name} is not the file that was tested (sha256)", "Look at the mirror it is from."
        )
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{jar.name}.{os.getpid()}"
    shutil.copyfile(found[jar.name], partial)
    return partial.replace(folder / jar.name)


def _intact(path: Path, jar: Jar) -> bool:
    return path.is_file() and sha256(path.read_bytes()).hexdigest() == jar.sha256


def _installed(package: str, otherwise: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return otherwise
