"""Run Apache Derby's Network Server as a child process on 127.0.0.1."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_db2cdc.sandbox.server.jdk import DerbyError, class_path, tool

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
_START_TIMEOUT_S = 40.0
# derbynet's own shutdown request: header, protocol version 2, no locale, no code set, command 1
_SHUTDOWN_REQUEST = b"CMD:\x00\x02\x00\x00\x01"


@dataclass(frozen=True)
class DerbySettings:
    """What a Derby server is started with.

    `durable` false skips the disk synchronisation of each commit: data survive a clean stop and a killed process, not a
    crash of the machine.
    """

    home: Path
    jars: Path
    port: int
    user: str
    password: str
    java_options: tuple[str, ...] = ()
    durable: bool = False
    time_zone: str = "UTC"
    lock_wait_s: int = 30
    deadlock_s: int = 5

    @property
    def classes(self) -> Path:
        """The folder of compiled classes on Derby's class path."""
        return self.home / "classes"


class DerbyServer:
    """One Network Server process; `start` after `stop` serves the same data again."""

    def __init__(self, settings: DerbySettings) -> None:
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._log_seen = 0

    @property
    def pid(self) -> int | None:
        """The JVM's process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Start the server and wait until it listens.

        Raises:
            DerbyError: no Java or jar, the JVM ended, or it does not listen in time.
        """
        settings = self.settings
        settings.classes.mkdir(parents=True, exist_ok=True)
        _write_private(settings.home / "derby.properties", render_properties(server_properties(settings)))
        with (settings.home / "derby-console.log").open("ab") as console:
            self._process = subprocess.Popen(
                _server_command(settings),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                process_group=0,  # Ctrl-C is for the service, which stops Derby cleanly
            )
        try:
            self._await_listening(timeout_s)
        except DerbyError:
            self._kill()
            raise

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop cleanly: shutdown request, then SIGTERM, then SIGKILL, each bounded."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            request_shutdown(self.settings)
        for insist in (process.terminate, process.kill):
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                log.warning("derby does not stop: pid=%s waited_s=%s", process.pid, timeout_s)
                insist()
        process.wait(timeout_s)
        self._process = None

    def internal_error(self) -> str | None:
        """Return what Derby's log says about an internal error of this run, or None.

        After clients were killed in mid-request, Derby may answer one statement text with a NullPointerException until
        it is restarted. Every other statement works. So only the log shows it, and a round trip does not.
        """
        path = self.settings.home / "derby.log"
        if not path.exists():
            return None
        with path.open("rb") as stream:
            stream.seek(self._log_seen)
            new = stream.read()
        self._log_seen += len(new)
        return "internal NullPointerException, see derby-broken.log" if b"NullPointerException" in new else None

    def _await_listening(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.pid is None:
                raise DerbyError("Derby ended while starting", f"Read {self.settings.home}/derby-console.log.")
            if is_listening(self.settings.port):
                return
            time.sleep(0.05)
        raise DerbyError(
            f"Derby does not listen on port {self.settings.port} after {timeout_s:.0f} s",
            f"Read {self.settings.home}/derby-console.log.",
        )

    def _kill(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        self._process = None


def server_properties(settings: DerbySettings) -> dict[str, str]:
    """Return Derby's properties: passwords are checked, locks do not escalate, pages are cached generously."""
    return {
        "derby.connection.requireAuthentication": "true",
        "derby.authentication.provider": "BUILTIN",
        f"derby.user.{settings.user}": settings.password,
        "derby.storage.pageCacheSize": "40000",
        "derby.locks.escalationThreshold": "2147483647",
        "derby.locks.waitTimeout": str(settings.lock_wait_s),
        "derby.locks.deadlockTimeout": str(settings.deadlock_s),
        # a full one is shrunk while others use it, and then a prepare may end in a NullPointerException (ClockPolicy)
        "derby.language.statementCache.size": "10000",
        # its daemon invalidates the capture triggers, and the writer that recompiles them holds the dictionary up
        "derby.storage.indexStats.auto": "false",
        **({} if settings.durable else {"derby.system.durability": "test"}),
    }


def render_properties(properties: dict[str, str]) -> str:
    """Render a Java properties file, with whatever characters a key or value has."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def request_shutdown(settings: DerbySettings) -> None:
    """Ask the server to close its databases and end; an unreachable server is left as it is."""
    credentials = b"".join(
        len(text).to_bytes(2, "big") + text for text in (settings.user.encode(), settings.password.encode())
    )
    try:
        with socket.create_connection((HOST, settings.port), 5) as connection:
            connection.sendall(_SHUTDOWN_REQUEST + credentials)
            connection.recv(1024)
    except OSError as error:
        log.debug("shutdown request not delivered: %s", error)


def is_listening(port: int) -> bool:
    """Whether something accepts connections on this local port."""
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


def end_orphans(home: Path) -> None:
    """Kill the Derby of a killed service with this home. It would keep the database locked.

    It is found by its command, not by a written pid. The service may have been killed before it wrote one.
    """
    deadline = time.monotonic() + 5
    while (left := _serving(home)) and time.monotonic() < deadline:
        for pid in left:
            log.warning("ending a derby of an earlier service: pid=%s", pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def free_port() -> int:
    """Return a local port that is free now."""
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def _serving(home: Path) -> list[int]:
    return [pid for pid, command in _commands() if f"{_home_argument(home)} -cp " in command]


def _commands() -> Iterable[tuple[int, str]]:
    """Each process and its command, blanks between arguments; from /proc where that is, as slim systems have no ps."""
    if Path("/proc/self").exists():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                yield int(path.parent.name), path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command


def _home_argument(home: Path) -> str:
    return f"-Dderby.system.home={home}"


def _server_command(settings: DerbySettings) -> list[str]:
    return [
        tool("java"),
        *settings.java_options,
        f"-Duser.timezone={settings.time_zone}",
        _home_argument(settings.home),
        "-cp",
        os.pathsep.join([str(settings.classes), class_path(settings.jars)]),
        "org.apache.derby.drda.NetworkServerControl",
        *("start", "-h", HOST, "-p", str(settings.port), "-noSecurityManager"),
    ]


def _escaped(text: str) -> str:
    return "".join(_escaped_characters(text))


def _escaped_characters(text: str) -> Iterable[str]:
    for character in text:
        if character.isascii() and (character.isalnum() or character in "._-"):
            yield character
        else:
            yield from (f"\\u{unit:04x}" for unit in _utf16_units(character))


def _utf16_units(character: str) -> Iterable[int]:
    encoded = character.encode("utf-16-be")
    return (int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2))


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600, exist_ok=True)
    path.write_text(text)
