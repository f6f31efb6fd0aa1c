"""The jars that Spark, the sandbox and a Kafka broker need. Spark's Ivy resolves them once into a folder.

With files in spark.jars, a start is about two seconds faster than with spark.jars.packages, and needs no network. Each
file is checked against its hash in JARS, so that a folder only holds tested files.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Literal

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.submit.bundle import cache_folder
from airflow_provider_db2cdc.submit.child import OnLine, run_child
from airflow_provider_db2cdc.submit.home import spark_binary, spark_environment
from airflow_provider_db2cdc.submit.stores import S3, STORE_LIBRARY, STORES

Part = Literal["spark", "s3", "sandbox", "kafka"]
Resolve = Callable[[Sequence[str], Path], Iterable[Path]]

SPARK_VERSION = "4.2.0"
DELTA_VERSION = "4.4.0"
JDBC_DRIVER = "com.ibm.db2:jcc:12.1.3.0"
DERBY_VERSION = "10.16.1.1"
DERBY = tuple(f"org.apache.derby:{name}:{DERBY_VERSION}" for name in ("derby", "derbyclient", "derbynet", "derbytools"))
KAFKA = ("org.apache.kafka:kafka_2.13:4.4.0",)
DRIVER_LIBRARY = re.compile(r"(db2)?jcc4?(-\d|\.|$)")
DELTA_LIBRARY = re.compile(r"delta-(spark|core)(_|-\d|\.|$)")
EXCLUDED = "org.apache.kafka:kafka-tools-api,software.amazon.awssdk:bundle"
"""Dependencies that are not fetched. Only the broker's command line tools need the first, which Maven Central lacks.

S3A needs a small part of the second (stores.py).
"""


@dataclass(frozen=True)
class Jar:
    """One file under Ivy's name, with the hash of the tested file."""

    part: str
    name: str
    sha256: str


def _tested() -> tuple[Jar, ...]:
    rows = [line.split() for line in files(__package__).joinpath("jars.sha256").read_text("utf-8").splitlines()]
    return tuple(Jar(part, name, digest) for digest, place in rows for part, _, name in [place.partition("/")])


JARS = _tested()
"""The files of `jars.sha256`, which `sha256sum --check` reads too."""


def default_folder() -> Path:
    """Return the default folder of `db2cdc jars`: $DB2CDC_JARS, or the user's cache."""
    chosen = os.environ.get("DB2CDC_JARS")
    return Path(chosen) if chosen else cache_folder() / "jars"


def spark_packages(spark: str = "", delta: str = "") -> tuple[str, ...]:
    """Return the Maven coordinates for these versions. The default is the installed ones, or else the tested ones."""
    spark = spark or _installed("pyspark", SPARK_VERSION)
    delta = delta or _installed("delta-spark", DELTA_VERSION)
    line = ".".join(spark.split(".")[:2])
    # Delta names its artifact after the Spark line since Spark 4.1.
    artifact = "delta-spark_2.13" if line == "4.0" else f"delta-spark_{line}_2.13"
    return (f"io.delta:{artifact}:{delta}", JDBC_DRIVER)


def spark_classpath(folder: Path | None, named: Sequence[str] = ()) -> tuple[list[Path], list[str]]:
    """Return the jar files and the Maven coordinates that a job needs in addition to those that it names itself.

    The folder is `folder`, $DB2CDC_JARS, or the default folder of `db2cdc jars`. If that default folder has no jars,
    the coordinates of the installed versions are returned instead. If `named` (files or coordinates) has Delta or a
    JDBC driver already, no other one is added.

    :raises ConfigurationError: when the folder does not exist, lacks one of these jars, or has a damaged one.
    """
    needed = [coordinates for coordinates in spark_packages() if _is_lacking(coordinates, named)]
    chosen = folder or default_folder()
    is_default = not folder and not os.environ.get("DB2CDC_JARS")
    place = chosen / "spark" if (chosen / "spark").is_dir() else chosen
    jars = sorted(place.glob("*.jar"))
    if is_default and not jars:
        return [], needed
    if needed and not place.is_dir():
        named_by = "" if folder or is_default else " of $DB2CDC_JARS"
        raise ConfigurationError(f"the jars folder {chosen}{named_by} does not exist", _remedy(chosen))
    taken = [jar for jar in jars if _is_lacking(jar.name, named)]
    _check_jars(chosen, taken, needed)
    return [*taken, *_store_jars(chosen, named)], []


def _store_jars(folder: Path, named: Sequence[str]) -> list[Path]:
    """Return the files of the stores' clients in a folder, unless the user's or Spark's own jars have one already."""
    if any(STORE_LIBRARY.match(_artifact(name)) for name in named):
        return []
    found: list[Path] = []
    for part in STORES:
        jars = [jar for jar in JARS if jar.part == part] if (folder / part).is_dir() else []
        if any(not _intact(folder / part / jar.name, jar) for jar in jars):
            raise ConfigurationError(
                f"the jars folder {folder} has a part of the client for {part}",
                f"Fill it with `db2cdc jars --with {part} --into {folder}`.",
            )
        found += [folder / part / jar.name for jar in jars]
    return found


def ensure_jars(into: Path, parts: Sequence[Part], resolve: Resolve) -> list[Path]:
    """Fetch the files that are missing in `into`/<part> for each of the parts, and return them.

    Other versions of these files, from an older provider, are removed. Every file there is on the class path.

    `resolve` fetches coordinates with their dependencies into a scratch folder. Jars that Spark ships are excluded,
    Scala's library among them. Each part is resolved separately, so that none decides the library versions of another.

    :raises ConfigurationError: when a file differs from the tested one, or cannot be fetched.
    """
    fetched: list[Path] = []
    for part in parts:
        missing = [jar for jar in JARS if jar.part == part and not _intact(into / part / jar.name, jar)]
        if missing:
            with tempfile.TemporaryDirectory(prefix="db2cdc-jars-") as scratch:
                resolved = {path.name: path for path in resolve(_coordinates(part), Path(scratch))}
                fetched += [_keep(resolved, jar, into / part) for jar in missing]
        _remove_other_versions(into / part, {jar.name for jar in JARS if jar.part == part})
    return fetched


def ivy_resolve(on_line: OnLine, ivy_settings: Path | None = None, binary: str = "") -> Resolve:
    """Return a resolver that fetches with the Ivy of spark-submit. `ivy_settings` may name a mirror."""

    def resolve(coordinates: Sequence[str], scratch: Path) -> Iterable[Path]:
        nothing = scratch / "nothing.py"
        nothing.write_text("", encoding="utf-8")
        argv = [spark_binary(binary), "--conf", f"spark.jars.ivy={scratch}", "--packages", ",".join(coordinates)]
        argv += ["--exclude-packages", EXCLUDED]
        if ivy_settings:
            argv += ["--conf", f"spark.jars.ivySettings={ivy_settings}"]
        code = run_child([*argv, str(nothing)], spark_environment(binary), on_line)
        if code:
            raise ConfigurationError(
                f"spark-submit could not resolve {', '.join(coordinates)} (exit code {code})",
                "Its output says why. With a mirror, name an Ivy settings file with --ivy-settings.",
            )
        return (scratch / "jars").glob("*.jar")

    return resolve


def _coordinates(part: Part) -> tuple[str, ...]:
    match part:
        case "spark":
            return _tested_packages()
        case "s3":
            _tested_packages()
            return S3
        case "sandbox":
            return DERBY
        case "kafka":
            return KAFKA


def _tested_packages() -> tuple[str, ...]:
    packages = spark_packages()
    if packages != spark_packages(SPARK_VERSION, DELTA_VERSION):
        raise ConfigurationError(
            f"jars are known for Spark {SPARK_VERSION} with Delta {DELTA_VERSION}, installed are others",
            f"Set spark.packages to {','.join(packages)}, or install pyspark=={SPARK_VERSION} and "
            f"delta-spark=={DELTA_VERSION}.",
        )
    return packages


def _remove_other_versions(folder: Path, names: set[str]) -> None:
    libraries = {_library(name) for name in names}
    for path in folder.glob("*.jar"):
        if path.name not in names and _library(path.name) in libraries:
            path.unlink()


def _check_jars(folder: Path, jars: Sequence[Path], needed: Sequence[str]) -> None:
    """Reject a folder whose jars would otherwise fail after Spark has started."""
    lacking = [name for coordinates in needed for name in _lacking_of(coordinates, jars)]
    if lacking:
        # Names of products come first, then the names of their files.
        lacking.sort(key=lambda name: name.endswith(".jar"))
        raise ConfigurationError(f"the jars folder {folder} lacks {', '.join(lacking)}", _remedy(folder))
    tested = {jar.name: jar for jar in JARS if jar.part == "spark"}
    for path in jars:
        known = tested.get(path.name)
        if not _is_archive(path) or (known and not _intact(path, known)):
            raise ConfigurationError(f"{path.name} in the jars folder {folder} is damaged", _remedy(folder))


def _lacking_of(coordinates: str, jars: Sequence[Path]) -> list[str]:
    """Return the jars of the coordinates' artifact that a folder lacks. For a tested Delta, that includes its parts."""
    names = {jar.name for jar in jars}
    artifacts = [_artifact(name) for name in names]
    if DRIVER_LIBRARY.match(_artifact(coordinates)):
        return [] if any(map(DRIVER_LIBRARY.match, artifacts)) else ["IBM's JDBC driver (jcc)"]
    tested = [jar.name for jar in JARS if jar.part == "spark" and not DRIVER_LIBRARY.match(_artifact(jar.name))]
    lacking = [] if any(map(DELTA_LIBRARY.match, artifacts)) else ["delta-spark"]
    lacking += [] if any(artifact.startswith("delta-storage-") for artifact in artifacts) else ["delta-storage"]
    if any(DELTA_LIBRARY.match(_artifact(name)) for name in names & {*tested}):
        lacking += [name for name in tested if name not in names and "delta-storage" not in name]
    return lacking


def _is_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path):
            return True
    except (OSError, zipfile.BadZipFile):
        return False


def _remedy(folder: Path) -> str:
    return f"Fill it with `db2cdc jars --into {folder}`."


def _is_lacking(ours: str, named: Sequence[str]) -> bool:
    """Return whether one of our jars or coordinates is to be added.

    A driver is not added if the user names one. Neither is any part of Delta if the user names Delta.
    """
    artifact, named_artifacts = _artifact(ours), [*map(_artifact, named)]
    if DRIVER_LIBRARY.match(artifact):
        return not any(map(DRIVER_LIBRARY.match, named_artifacts))
    tested = {_library(_artifact(jar.name)) for jar in JARS if jar.part == "spark"}
    is_of_delta = DELTA_LIBRARY.match(artifact) or _library(artifact) in tested
    return not (is_of_delta and any(map(DELTA_LIBRARY.match, named_artifacts)))


def _artifact(item: str) -> str:
    """Return the artifact of coordinates (`group:artifact:version`), or a file's name without its group."""
    name = item.rsplit("/", 1)[-1]
    if "/" not in item and item.count(":") >= 2:
        return item.split(":")[1]
    return re.sub(r"^\w+(\.[\w-]+)+_(?=[a-z])", "", name)


def _library(name: str) -> str:
    """Return a file's name up to its version. Delta's names have Spark's version before their own."""
    return re.split(r"[-_]\d", name, maxsplit=1)[0]


def _keep(resolved: dict[str, Path], jar: Jar, folder: Path) -> Path:
    if jar.name not in resolved:
        raise ConfigurationError(f"{jar.name} was not among what Ivy resolved", "Is it excluded by the mirror?")
    if not _intact(resolved[jar.name], jar):
        raise ConfigurationError(
            f"{jar.name} is not the file that was tested (sha256)", "Look at the mirror it is from."
        )
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{jar.name}.{os.getpid()}"
    shutil.copyfile(resolved[jar.name], partial)
    return partial.replace(folder / jar.name)


def _intact(path: Path, jar: Jar) -> bool:
    return path.is_file() and sha256(path.read_bytes()).hexdigest() == jar.sha256


def _installed(package: str, otherwise: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return otherwise
