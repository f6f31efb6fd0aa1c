"""What the demo and the UI need: a fresh folder, the sandbox with the shop, its writers, and an Airflow home."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_db2cdc.demo import shop
from airflow_provider_db2cdc.demo.board import Board
from airflow_provider_db2cdc.demo.child import Child
from airflow_provider_db2cdc.demo.cluster.demo import enter_cluster
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome
from airflow_provider_db2cdc.demo.services.postgres import find_programs, remove_remains, running_server
from airflow_provider_db2cdc.demo.writer import Writers
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError
from airflow_provider_db2cdc.sandbox.server.service import Sandbox, SandboxError

MARKER = ".db2cdc-demo"
CAPTURE_INTERVAL_S = 1.0
MIGRATE_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Stage:
    """Everything that runs. `ending` takes what is to end with it."""

    ending: ExitStack
    home: AirflowHome
    sandbox: Sandbox
    writers: Writers


@dataclass(frozen=True)
class StageOptions:
    """Where it is, the shop's first rows, and each writer's transactions per second.

    With `keep` the sandbox continues to run afterwards, except after an error. With `server`, Airflow's metadata are
    in PostgreSQL where it is installed, else in SQLite. With `cluster`, Spark is a standalone cluster.
    """

    folder: Path
    rows: int
    rate: float
    keep: bool = False
    server: bool = False
    cluster: bool = False


@contextmanager
def open_stage(options: StageOptions, board: Board) -> Iterator[Stage]:
    """Set everything up in an emptied folder, with running writers, and end all of it afterwards.

    Raises:
        ConfigurationError: the folder holds something else, or what the demo needs is not installed.
    """
    stack, kept = ExitStack(), False
    try:
        with board.step(f"an empty folder: {options.folder}"):
            home = AirflowHome(empty(options.folder))
        if options.cluster:
            enter_cluster(stack, home, board)
        home.lay_out()
        if options.server:
            enter_server(stack, home, board)
        migrating = stack.enter_context(home.migrate())
        with board.step("the sandbox, a stand-in for Db2 (it is not Db2)") as step:
            sandbox = Sandbox.start(options.folder / "sandbox", commit_interval_s=CAPTURE_INTERVAL_S)
            stack.callback(lambda: None if kept else sandbox.stop())
            step.outcome = f"listens on {sandbox.state.host}:{sandbox.port}"
        with board.step(f"a shop in schema {shop.SCHEMA}, registered for capture") as step:
            with closing(sandbox.connect()) as connection:
                counts = shop.build(connection, options.rows)
            step.outcome = ", ".join(f"{table.name} {count}" for table, count in counts.items())
        with board.step("airflow db migrate"):
            _await_migration(migrating, home)
        writers = stack.enter_context(Writers(sandbox.connect, rate=options.rate))
        board.counters = lambda: describe(writers)
        yield Stage(stack, home, sandbox, writers)
        kept = options.keep
    finally:
        with _uninterrupted(), board.step("everything ends that was started"):
            stack.close()


def enter_server(stack: ExitStack, home: AirflowHome, board: Board) -> None:
    """Have PostgreSQL hold Airflow's metadata, or say why it does not."""
    with board.step("PostgreSQL for Airflow's metadata") as step:
        try:
            home.database = stack.enter_context(running_server(find_programs(), home))
        except Db2CdcError as error:
            step.good, step.outcome = False, str(error)


def empty(folder: Path) -> Path:
    """Empty a folder that an earlier demo made, or make it. A sandbox that still runs in it is stopped.

    Raises:
        ConfigurationError: it holds something that the demo did not make.
    """
    folder = folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).is_file():
            raise ConfigurationError(f"{folder} holds something else than a demo", "Name another with --folder.")
        _stop_sandbox(folder / "sandbox")
        remove_remains(folder)
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()
    return folder


def describe(writers: Writers) -> str:
    """Return what the writers have done, in one line."""
    counts = writers.counts
    kinds = ("inserted", "updated", "deleted", "keys shifted", "commits", "rollbacks")
    return "writers: " + ", ".join(f"{kind} {counts[kind]}" for kind in kinds)


def _stop_sandbox(folder: Path) -> None:
    try:
        sandbox = Sandbox.find(folder)
    except SandboxError:
        return
    sandbox.stop()


def _await_migration(migrating: Child, home: AirflowHome) -> None:
    if migrating.process.wait(MIGRATE_TIMEOUT_S):
        raise Db2CdcError("airflow db migrate failed", f"Read {home.logs / 'migrate.log'}.")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore further Ctrl-C, so that everything is ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
