"""Java for the sandbox: where Derby's jars are, and the compiler for the classes that Derby calls."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.submit.jars import default_folder

_JAR_NAMES = ("derby", "derbyshared", "derbynet", "derbytools")
_COMPILE_TIMEOUT_S = 120.0


class DerbyError(Db2CdcError):
    """Derby or its tools cannot be started."""


def find_jars(folder: Path | None = None) -> Path:
    """Return the folder that holds Derby's jars: the given one, else where `db2cdc jars` puts them, else a checkout's.

    Raises:
        DerbyError: none of them holds all jars.
    """
    places = [folder] if folder else [default_folder() / "sandbox", Path("build", "jars", "sandbox")]
    for place in places:
        if all(list(place.glob(f"*{name}-*.jar")) for name in _JAR_NAMES):
            return place.resolve()
    raise DerbyError(
        f"Apache Derby's jars ({', '.join(_JAR_NAMES)}) are not in {' nor in '.join(map(str, places))}",
        f"Fetch them with `db2cdc jars --sandbox{f' --into {folder.parent}' if folder else ''}`.",
    )


def compile_java(sources: Sequence[Path], into: Path, jars: Path) -> None:
    """Compile Java sources against Derby's jars, unless the folder was filled from the same sources.

    Raises:
        DerbyError: no javac, or the compiler's first messages.
    """
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
    stamp = into / ".sources"
    if not sources or (stamp.exists() and stamp.read_text() == digest):
        return
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    command = [
        tool("javac"),
        "-J-XX:TieredStopAtLevel=1",
        "-nowarn",
        "-d",
        str(into),
        "-cp",
        class_path(jars),
        *map(str, sources),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
    if done.returncode:
        raise DerbyError(f"javac failed: {done.stderr[:2000]}")
    stamp.write_text(digest)


def class_path(jars: Path) -> str:
    """Return the class path of Derby's jars."""
    return os.pathsep.join(str(jar) for jar in sorted(jars.glob("*derby*.jar")))


def tool(name: str) -> str:
    """Return the path of a program of the JDK.

    Raises:
        DerbyError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    in_home = shutil.which(name, path=str(Path(home, "bin"))) if home else None
    if path := in_home or shutil.which(name):
        return path
    raise DerbyError(
        f"the sandbox finds no {name}", "Put a JDK of version 17 or newer on PATH or name it in JAVA_HOME."
    )
