"""A private PostgreSQL for Airflow's metadata. In SQLite, Airflow creates no backfill while its scheduler runs.

The server has a folder of its own below /tmp. The path of a socket may have 107 bytes, and as root the server runs as
another user, who cannot reach every folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_provider_db2cdc.demo.child import Child
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError

DEBIAN = Path("/usr/lib/postgresql")
"""Debian keeps the server's programs here, out of PATH, in a folder for each major version."""

SYSTEM_USER = "postgres"
"""Debian's package adds it. The server refuses to run as root."""

LINK = "postgres"
"""In the UI's folder it leads to the server's, so that the next start removes what a killed one has kept."""

START_TIMEOUT_S = 60.0
INSTALL = "Install Debian's `postgresql`."
ACCESS = ("--auth=trust", "--username=airflow", "--encoding=UTF8", "--no-locale", "--no-sync")
"""Other users do not reach the socket. This takes the place of a password."""

PORT = "5432"
"""It is only part of the socket's name."""

SETTINGS = ("--listen_addresses=", f"--port={PORT}", "--fsync=off")


def find_programs() -> Path:
    """Return the folder of the server's programs, on PATH or where Debian keeps them.

    Raises:
        ConfigurationError: the server is not installed, or cannot run here.
    """
    initdb = shutil.which("initdb") or next(map(str, DEBIAN.glob("*/bin/initdb")), None)
    if initdb is None:
        raise ConfigurationError("PostgreSQL is not installed", INSTALL)
    if os.geteuid() == 0 and SYSTEM_USER not in {user.pw_name for user in pwd.getpwall()}:
        raise ConfigurationError(f"PostgreSQL does not run as root, and there is no user {SYSTEM_USER}", INSTALL)
    return Path(initdb).resolve().parent


@contextmanager
def running_server(programs: Path, home: AirflowHome) -> Iterator[str]:
    """Run an empty server, and yield the URL that Airflow reaches it by. It ends with the block, or with this process.

    Raises:
        Db2CdcError: it does not start.
    """
    log, user = home.logs / "postgres.log", SYSTEM_USER if os.geteuid() == 0 else ""
    with _own_folder(user) as folder:
        (home.folder / LINK).symlink_to(folder)

        def child(program: str, *arguments: str) -> Child:
            argv = [str(programs / program), "-D", "data", *arguments]
            return Child(argv, home.environment(), Path(folder), log, user)

        with child("initdb", *ACCESS) as initdb:
            if initdb.process.wait():
                raise _failure(log)
        with child("postgres", *SETTINGS, f"--unix_socket_directories={folder}") as server:
            _await_answer(programs, server, folder, log)
            yield f"postgresql+psycopg2://airflow@/postgres?host={folder}&port={PORT}"


def remove_remains(home: Path) -> None:
    """Remove the folder of a server that was killed together with its UI."""
    with suppress(OSError):
        shutil.rmtree((home / LINK).readlink())


@contextmanager
def _own_folder(user: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="db2cdc-postgres-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, user, user)
        yield folder


def _await_answer(programs: Path, server: Child, folder: str, log: Path) -> None:
    probe = [str(programs / "pg_isready"), "-q", "-h", folder, "-p", PORT, "-U", "airflow", "-d", "postgres"]
    deadline = time.monotonic() + START_TIMEOUT_S
    while subprocess.run(probe, check=False).returncode:
        if not server.running or time.monotonic() > deadline:
            raise _failure(log)
        time.sleep(0.1)


def _failure(log: Path) -> Db2CdcError:
    return Db2CdcError("PostgreSQL does not start", f"Read {log}.")
