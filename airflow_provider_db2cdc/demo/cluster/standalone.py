"""A Spark standalone cluster on this machine: a master, and workers that share only jars and the file system."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider_db2cdc.demo.child import Child
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError
from airflow_provider_db2cdc.submit.home import spark_home

MASTER_HOST = "127.0.0.1"
MASTER_CLASS, WORKER_CLASS = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
MASTER_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
WORKER_STARTED = re.compile(r"Successfully registered with master")
START_TIMEOUT_S = 90.0
PROGRAMS = ("bash", "cat", "chmod", "dirname", "env", "head", "ls", "ps", "readlink", "rm", "stat")
"""What a node has on PATH: what spark-class and Hadoop's local file system call. There is no Python among them."""

DRIVER_CONF = {"spark.driver.host": MASTER_HOST, "spark.driver.bindAddress": MASTER_HOST}
"""Settings of a driver on this machine. Otherwise it would listen at the address of the machine's name."""


@dataclass(frozen=True)
class WorkerSize:
    """What a worker offers to executors, and further environment variables of it and of its executors."""

    cores: int = 2
    memory: str = "1200m"
    environment: Mapping[str, str] = field(default_factory=dict)


class Node:
    """A master or worker process at an address of the loopback network, with a folder and an environment of its own.

    Its Spark is a folder with links to the jars and programs of the installed pyspark, not to its Python.
    """

    def __init__(self, folder: Path, host: str, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.host = host
        self.log = folder / "node.log"
        self._environment = {**environment_of_node(folder), "SPARK_LOCAL_IP": host, **environment}
        self.child: Child | None = None

    def start(self, class_name: str, *arguments: str) -> None:
        """Start the process."""
        lay_out_spark(self.folder)
        bash = str(self.folder / "bin" / "bash")
        launcher = str(self.folder / "spark" / "bin" / "spark-class")
        argv = [bash, launcher, class_name, "--host", self.host, "--port", "0", "--webui-port", "0", *arguments]
        self.child = Child(argv, self._environment, self.folder, self.log)

    def await_line(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait for a line of its log.

        :raises Db2CdcError: the process ended, or the line does not come.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if found := pattern.search(self.log.read_text(errors="replace")):
                return found
            if self.child is None or not self.child.running:
                raise Db2CdcError(f"Spark's {self.folder.name} ended while it started", f"Read {self.log}.")
            time.sleep(0.2)
        raise Db2CdcError(f"Spark's {self.folder.name} did not start in {START_TIMEOUT_S:.0f} s", f"Read {self.log}.")

    def kill(self) -> None:
        """Kill it and its executors at once, as if its machine lost power."""
        if self.child is not None:
            self.child.kill()

    def end(self) -> None:
        """End it and its executors."""
        if self.child is not None:
            self.child.end()


class StandaloneCluster:
    """A master and workers. As a context manager they run within the block."""

    def __init__(self, folder: Path, sizes: tuple[WorkerSize, ...] = (WorkerSize(), WorkerSize())) -> None:
        self.url = ""
        self._master = Node(folder / "master", MASTER_HOST, {})
        self._sizes = sizes
        self.workers = [
            Node(folder / f"worker{number}", f"127.0.0.{number + 1}", size.environment)
            for number, size in enumerate(sizes, 1)
        ]
        self._ending = ExitStack()

    def __enter__(self) -> StandaloneCluster:
        with ExitStack() as stack:
            stack.callback(self._master.end)
            self._master.start(MASTER_CLASS)
            self.url = self._master.await_line(MASTER_STARTED)[1]
            for worker, size in zip(self.workers, self._sizes, strict=True):
                stack.callback(worker.end)
                offer = ("--cores", str(size.cores), "--memory", size.memory)
                worker.start(WORKER_CLASS, *offer, "--work-dir", str(worker.folder / "work"), self.url)
            for worker in self.workers:
                worker.await_line(WORKER_STARTED)
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()


def environment_of_node(folder: Path) -> dict[str, str]:
    """Return the whole environment of a node: nothing of the user's."""
    java = shutil.which("java")
    home = os.environ.get("JAVA_HOME") or (str(Path(java).resolve().parents[1]) if java else "")
    if not home:
        raise ConfigurationError("the cluster needs Java: there is no JAVA_HOME and no java on PATH", "Install a JDK.")
    return {
        "JAVA_HOME": home,
        "HOME": str(folder),
        "PATH": str(folder / "bin"),
        "SPARK_HOME": str(folder / "spark"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


def lay_out_spark(folder: Path) -> None:
    """Create the folder of a node: links to the installed Spark's jars and to a few programs.

    :raises ConfigurationError: the installed pyspark has no such Spark.
    """
    installed = spark_home()
    if not (installed / "bin" / "spark-class").is_file():
        raise ConfigurationError(f"{installed} has no bin/spark-class", "Install pyspark, not pyspark-client.")
    for name in ("bin", "local", "spark", "work"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "jars"):
        (folder / "spark" / name).symlink_to(installed / name)
    for name in PROGRAMS:
        if found := shutil.which(name):
            (folder / "bin" / name).symlink_to(found)
