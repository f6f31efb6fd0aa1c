"""Keep Derby, the shim and the capture agent running, and start again what broke."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import ibm_db

from airflow_provider_db2cdc.sandbox.protocol.proxy import Shim
from airflow_provider_db2cdc.sandbox.server.derby import (
    DerbyServer,
    DerbySettings,
    end_orphans,
    free_port,
    is_listening,
)
from airflow_provider_db2cdc.sandbox.server.jdk import DerbyError, compile_java, find_jars
from airflow_provider_db2cdc.sandbox.server.state import BANNER, SandboxOptions, SandboxState, read_state, write_state
from airflow_provider_db2cdc.source.driver import open_handle

log = logging.getLogger(__name__)

_JAVA_SOURCES = Path(__file__).parent / "java"
_START_ATTEMPTS = 3
_PROBE_TIMEOUT_S = 20.0
_CAPTURE_INSTALL_S = 30.0
_CAPTURE_RETRY_S = 1.0
_CAPTURE_STOP_S = 10.0


class Supervisor:
    """One sandbox's life: start everything, watch it, restart Derby when it no longer answers, stop everything.

    The data in the folder outlive restarts and stops; the shim's port stays the same over a restart of Derby.
    """

    def __init__(self, folder: Path, options: SandboxOptions) -> None:
        self._folder = folder.resolve()
        self._state = _planned_state(self._folder, options)
        self._settings = _derby_settings(self._folder, options)
        self._derby = DerbyServer(self._settings)
        self._shim: Shim | None = None
        self._doubtful = False
        self._stopping = threading.Event()
        self._installed = threading.Event()
        self._capture: threading.Thread | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set. Whatever happens, everything that was started is ended.

        Raises:
            DerbyError: Derby cannot be started.
        """
        log.info("starting: %s", BANNER)
        try:
            self._start()
            while not stop.wait(self._state.options.health_interval_s):
                self._check()
        finally:
            self._stop()

    def _start(self) -> None:
        options = self._state.options
        end_orphans(self._settings.home)
        self._publish(ready=False)
        compile_java(sorted(_JAVA_SOURCES.rglob("*.java")), self._settings.classes, self._settings.jars)
        self._start_derby()
        if not (self._settings.home / options.database).exists():
            self._create_database()
        self._shim = Shim(self._derby.settings.port, options.database, self._state.port).start()
        self._publish(port=self._shim.port)
        if error := probe(self._state.dsn):
            raise DerbyError(f"the sandbox started but does not answer: {error}")
        if options.capture:
            self._start_capture()
        self._publish(ready=True)
        log.info("ready: port=%s database=%s derby_pid=%s", self._state.port, options.database, self._derby.pid)

    def _start_derby(self) -> None:
        """Start Derby on a port that is free now. Try again if another process takes the port first."""
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._derby = DerbyServer(replace(self._settings, port=free_port()))
            try:
                self._derby.start()
                break
            except DerbyError as error:
                if attempt == _START_ATTEMPTS:
                    raise
                log.warning("derby did not start and is tried again: %s", error)
        if self._shim:
            self._shim.derby_port = self._derby.settings.port

    def _create_database(self) -> None:
        with Shim(self._derby.settings.port, self._state.options.database, create_database=True) as creator:
            if error := probe(replace(self._state, port=creator.port).dsn):
                raise DerbyError(f"the database cannot be created: {error}")
        log.info("database created: %s", self._state.options.database)

    def _check(self) -> None:
        if error := self._fault():
            log.error("derby is broken and will be restarted: %s", error)
            try:
                self._restart_derby()
            except DerbyError:
                log.exception("derby cannot be restarted and will be tried again")

    def _fault(self) -> str | None:
        if self._derby.pid is None:
            return "its process ended"
        if error := self._derby.internal_error():
            return error
        error = probe(self._state.dsn)
        if error:
            log.warning("health check failed: %s", error)
        # a restart costs every client its connection: once may be a busy machine, twice is not
        confirmed, self._doubtful = self._doubtful, error is not None
        return error if confirmed else None

    def _restart_derby(self) -> None:
        self._doubtful = False
        self._publish(ready=False)
        self._derby.stop()
        if (derby_log := self._settings.home / "derby.log").exists():
            derby_log.replace(derby_log.with_name("derby-broken.log"))  # Derby begins a new one when it starts
        if self._shim:
            self._shim.drop_connections()
        self._start_derby()
        self._publish(ready=probe(self._state.dsn) is None, restarts=self._state.restarts + 1)
        log.info("derby restarted: derby_pid=%s ready=%s", self._derby.pid, self._state.ready)

    def _start_capture(self) -> None:
        """Start the agent and wait until its control tables are there. Users of a ready sandbox need them."""
        self._capture = threading.Thread(target=self._run_capture, name="capture", daemon=True)
        self._capture.start()
        deadline = time.monotonic() + _CAPTURE_INSTALL_S
        while not self._installed.wait(0.1):
            if time.monotonic() > deadline or not self._capture.is_alive():
                raise DerbyError("the capture agent could not be installed", "The service's log says why.")

    def _stop(self) -> None:
        log.info("stopping")
        self._stopping.set()
        if self._capture:
            self._capture.join(_CAPTURE_STOP_S)
        if self._shim:
            self._shim.stop()
        self._derby.stop()
        self._publish(ready=False)
        log.info("stopped")

    def _run_capture(self) -> None:
        """Run the agent, and a new one whenever it failed: it loses its connection when Derby is restarted."""
        options = self._state.options
        agent_module = importlib.import_module("airflow_provider_db2cdc.sandbox.capture.agent")
        capture_options = agent_module.CaptureOptions(
            commit_interval_s=options.commit_interval_s,
            lsn_bytes=options.lsn_bytes,
            update_as=options.update_as,
            before_images=options.before_images,
        )
        while not self._stopping.is_set():
            try:
                agent = agent_module.CaptureAgent(self._state.dsn, capture_options)
                agent.install()
                self._installed.set()
                agent.run_forever(self._stopping)
            except Exception:
                log.exception("capture agent failed and will be started again")
                self._stopping.wait(_CAPTURE_RETRY_S)

    def _publish(self, *, port: int | None = None, ready: bool | None = None, restarts: int | None = None) -> None:
        now = self._state
        self._state = replace(
            now,
            pid=os.getpid(),
            port=now.port if port is None else port,
            derby_port=self._derby.settings.port,
            derby_pid=self._derby.pid or 0,
            ready=now.ready if ready is None else ready,
            restarts=now.restarts if restarts is None else restarts,
        )
        write_state(self._folder, self._state)


def probe(dsn: str, timeout_s: float = _PROBE_TIMEOUT_S) -> str | None:
    """Run one statement through the shim; return None, or why it did not work."""
    outcome: list[str | None] = []
    thread = threading.Thread(target=lambda: outcome.append(_round_trip(dsn)), name="probe", daemon=True)
    thread.start()
    thread.join(timeout_s)  # ibm_db waits for ever for a server that accepts and stays silent
    return outcome[0] if outcome else f"no answer within {timeout_s:.0f} s"


def derby_home(folder: Path) -> Path:
    """The part of a sandbox's folder that is Derby's."""
    return folder.resolve() / "data"


def _round_trip(dsn: str) -> str | None:
    try:
        connection = open_handle(dsn)
        try:
            statement = ibm_db.exec_immediate(connection, "VALUES 1")
            row = ibm_db.fetch_tuple(statement)
            # released after its connection, a statement takes another thread's new one, of the same handle, along
            del statement
            return None if row else "VALUES 1 returned no row"
        finally:
            ibm_db.close(connection)
    except Exception as error:  # ibm_db raises plain Exception
        return str(error)


def _planned_state(folder: Path, options: SandboxOptions) -> SandboxState:
    """Keep the folder's port unless another one is requested, so that connections configured earlier still work."""
    earlier = read_state(folder) or SandboxState()
    kept = earlier.port if earlier.port and not is_listening(earlier.port) else 0
    return SandboxState(options, port=options.port or kept)


def _derby_settings(folder: Path, options: SandboxOptions) -> DerbySettings:
    return DerbySettings(
        home=derby_home(folder),
        jars=find_jars(Path(options.jars) if options.jars else None),
        port=0,
        user=options.user,
        password=options.password,
        java_options=tuple(options.java_options.split()),
        durable=options.durable,
        time_zone=options.time_zone,
    )
