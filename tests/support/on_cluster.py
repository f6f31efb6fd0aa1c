"""Ticks of a pipeline on a Spark cluster, submitted as `db2cdc tick` does, with a driver process for each."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.config.pipeline import SparkConfig
from airflow_provider_db2cdc.demo.cluster.spread import JDBC_SCAN, HostShare, event_log_conf, shares_of_folder
from airflow_provider_db2cdc.demo.cluster.standalone import DRIVER_CONF
from airflow_provider_db2cdc.offsets.commit import record_reported
from airflow_provider_db2cdc.submit.runner import Login, run_job
from support.pipeline import Pipeline
from support.submitted import JARS


@dataclass
class ClusterTicks:
    """Runs a pipeline's ticks on the cluster at `master`. `address` replaces the host and port of the source."""

    pipeline: Pipeline
    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.events = self.pipeline.folder / "events"
        self.events.mkdir(exist_ok=True)
        self.pipeline.properties = {"target.shared.mount": True, **self.pipeline.properties}

    def run(self, spec: JobSpec, on_line: Callable[[str], object] = lambda line: None) -> JobResult:
        """Run a plan, and move the offsets. Each line of the driver's output goes to `on_line`."""

        def keep(line: str) -> None:
            self.lines.append(line)
            on_line(line)

        box = self.pipeline.sandbox
        own = {**DRIVER_CONF, **event_log_conf(self.events), "spark.executor.memory": "1g", "spark.driver.memory": "1g"}
        spark = SparkConfig(master=self.master, jars=JARS, conf={**own, **self.conf})
        if self.address:
            url = spec.source.jdbc_url.replace(f"127.0.0.1:{box.port}", self.address)
            assert url != spec.source.jdbc_url
            spec = replace(spec, source=replace(spec.source, jdbc_url=url))
        result = run_job(spec, spark, Login(box.user, box.password), keep)
        self.pipeline.commit(result)
        record_reported(result, self.pipeline.offsets, is_notified=True)
        return result

    def plan(self, signals: Sequence[Signal] = ()) -> JobSpec:
        """Plan a tick of everything captured."""
        self.pipeline.captured()
        spec = self.pipeline.plan(signals=signals)
        assert spec is not None, "there is nothing to do"
        return spec

    def tick(self, *signals: Signal, on_line: Callable[[str], object] = lambda line: None) -> JobResult:
        """Plan and run a tick of everything captured."""
        return self.run(self.plan(signals), on_line)

    def passed(self, *signals: Signal, on_line: Callable[[str], object] = lambda line: None) -> JobResult:
        """Run a tick of everything captured, and check that no table fails."""
        result = self.tick(*signals, on_line=on_line)
        assert not result.failed, [table.error for table in result.failed]
        return result

    def to_its_end(self, on_line: Callable[[str], object] = lambda line: None) -> int:
        """Run ticks until nothing is left to do, and check that no table fails. Return how many it took."""
        count = 0
        while (spec := self.pipeline.plan()) is not None:
            result = self.run(spec, on_line)
            assert not result.failed, [table.error for table in result.failed]
            self.pipeline.captured()
            count += 1
        return count

    @property
    def shares(self) -> dict[str, HostShare]:
        """What each worker's host did so far."""
        return shares_of_folder(self.events)

    def rows_per_s(self) -> float:
        """Return the rows of the source per second, from the first reader's start to the last reader's end."""
        stages = self._events("SparkListenerStageSubmitted")
        reading = {event["Stage Info"]["Stage ID"] for event in stages if JDBC_SCAN in json.dumps(event["Stage Info"])}
        tasks = [event for event in self._events("SparkListenerTaskEnd") if event["Stage ID"] in reading]
        readers = [event for event in tasks if event["Task Metrics"]["Input Metrics"]["Records Read"]]
        rows = sum(event["Task Metrics"]["Input Metrics"]["Records Read"] for event in readers)
        begun = min(event["Task Info"]["Launch Time"] for event in readers)
        ended = max(event["Task Info"]["Finish Time"] for event in readers)
        return 1000.0 * int(rows) / int(ended - begun)

    def task_ends(self) -> Counter[str]:
        """Return how the tasks so far ended."""
        return Counter(event["Task End Reason"]["Reason"] for event in self._events("SparkListenerTaskEnd"))

    def last_host(self) -> str:
        """Return the host of the newest task in the event log of the running driver."""
        [log] = self.events.glob("*.inprogress")
        ends = [line for line in log.read_text("utf-8").splitlines() if '"Event":"SparkListenerTaskEnd"' in line]
        return str(re.findall(r'"Host":"([\d.]+)"', "".join(ends))[-1])

    def executor_hosts(self) -> list[str]:
        """Return the host of each executor that the drivers had so far."""
        return [event["Executor Info"]["Host"] for event in self._events("SparkListenerExecutorAdded")]

    def _events(self, name: str) -> list[dict[str, Any]]:
        logs: list[Path] = sorted(self.events.iterdir())
        events = [json.loads(line) for log in logs for line in log.read_text("utf-8").splitlines()]
        return [event for event in events if event["Event"] == name]
