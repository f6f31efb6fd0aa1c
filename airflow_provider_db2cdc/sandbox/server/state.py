"""What the sandbox remembers in its folder: the options that it was started with and where it can be reached."""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, Literal

DEFAULT_FOLDER = Path("build", "sandbox")
HOST = "127.0.0.1"
BANNER = (
    "This is the db2cdc sandbox: Apache Derby with a protocol shim, with an emulated capture agent. "
    "It is NOT Db2; it serves development, demos and tests, and nothing it does is evidence about Db2's behaviour."
)
_DATABASE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,17}")
DRIVER_OPTIONS = {"Authentication": "SERVER", "ArrayInputChain": "0"}
"""The options that IBM's driver needs for the sandbox (docs/contributing/sandbox.md)."""

_STATE_FILE = "sandbox.json"
_LOCK_FILE = "service.lock"


@dataclass(frozen=True)
class SandboxOptions:
    """How to run the sandbox. A port of 0 keeps the folder's last port, or takes a free one.

    `java_options` are those of Derby's JVM. By default it compiles quickly instead of well. In one minute of a
    small pipeline 14 of 16 CPU seconds went into compiling well. To read millions of rows, let it compile well.
    `update_as` is what captured updates look like: a D and an I row, or one U row. `time_zone` is that of the source's
    clock, as Java names it.
    """

    port: int = 0
    database: str = "SANDBOX"
    user: str = "db2inst1"
    password: str = "sandbox"
    jars: str | None = None
    java_options: str = "-Xmx1g -XX:TieredStopAtLevel=1"
    durable: bool = False
    health_interval_s: float = 5.0
    capture: bool = True
    commit_interval_s: float = 1.0
    lsn_bytes: int = 16
    update_as: Literal["DI", "U"] = "DI"
    before_images: bool = False
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        """Refuse what no driver could carry.

        Raises:
            ValueError: the option, and what it may be.
        """
        if not _DATABASE.fullmatch(self.database):
            raise ValueError(f"database {self.database!r}: use up to 18 letters, digits and _, a letter first")
        for name, text in (("user", self.user), ("password", self.password)):
            if not text or ";" in text:
                raise ValueError(f"{name}: must not be empty nor hold ';', which no ibm_db connection string can quote")


@dataclass(frozen=True)
class SandboxState:
    """The content of sandbox.json. `ready` turns true when a statement went through shim and Derby."""

    options: SandboxOptions = field(default_factory=SandboxOptions)
    host: str = HOST
    port: int = 0
    derby_port: int = 0
    pid: int = 0
    derby_pid: int = 0
    ready: bool = False
    restarts: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """The `database.*` of a configuration that reads it."""
        options = self.options
        named = {"hostname": self.host, "port": self.port, "dbname": options.database}
        return {**named, "user": options.user, "password": options.password, "options": DRIVER_OPTIONS}

    @property
    def dsn(self) -> str:
        """The connection string for ibm_db. Its executemany needs ArrayInputChain=0 on the sandbox."""
        options = self.options
        return (
            f"DATABASE={options.database};HOSTNAME={self.host};PORT={self.port};PROTOCOL=TCPIP;"
            f"UID={options.user};PWD={options.password};AUTHENTICATION=SERVER;ArrayInputChain=0;"
        )

    @property
    def jdbc_url(self) -> str:
        """The URL for JCC; user and password go into the connection's properties."""
        return f"jdbc:db2://{self.host}:{self.port}/{self.options.database}:securityMechanism=3;"


def read_state(folder: Path) -> SandboxState | None:
    """Return the folder's state, or None if it never held a sandbox.

    Fields of another version that this one does not know are ignored. So one version may take over another's folder.

    Raises:
        ValueError: the file is no JSON, or an option of it is refused.
    """
    try:
        text = (folder / _STATE_FILE).read_text()
    except FileNotFoundError:
        return None
    document = json.loads(text)
    options = SandboxOptions(**_known(SandboxOptions, document.get("options", {})))
    return SandboxState(**{**_known(SandboxState, document), "options": options})


def write_state(folder: Path, state: SandboxState) -> None:
    """Replace the folder's state in one step. The file holds the password and is private to its owner."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{_STATE_FILE}.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(asdict(state), indent=2) + "\n")
    draft.replace(folder / _STATE_FILE)


def acquire_lock(folder: Path) -> IO[str] | None:
    """Return the folder's lock, held until it is closed or its process ends, or None if a service holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = (folder / _LOCK_FILE).open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle


def running_state(folder: Path) -> SandboxState | None:
    """Return the state of the service that runs in this folder, or None.

    The lock decides, not the pid. The pid of a killed service may belong to any other process by now.
    """
    if not (folder / _LOCK_FILE).exists():
        return None
    if lock := acquire_lock(folder):
        lock.close()
        return None
    return read_state(folder)


def _known(kind: type[SandboxState] | type[SandboxOptions], document: dict[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in document.items() if name in names}
