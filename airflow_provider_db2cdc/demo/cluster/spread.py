"""How the work of Spark applications spreads over hosts, as their event logs show."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JDBC_SCAN = "JDBCRDD"
"""The name of Spark's RDD that reads by JDBC."""


@dataclass(frozen=True)
class HostShare:
    """What the tasks of one host did: `readers` of them read `source_rows` by JDBC, all wrote `written_bytes`."""

    tasks: int = 0
    readers: int = 0
    source_rows: int = 0
    written_bytes: int = 0

    def __add__(self, other: HostShare) -> HostShare:
        return HostShare(
            self.tasks + other.tasks,
            self.readers + other.readers,
            self.source_rows + other.source_rows,
            self.written_bytes + other.written_bytes,
        )


def event_log_conf(folder: Path) -> dict[str, str]:
    """Return the settings by which Spark writes one plain event log per application into a folder, which must exist."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def shares_of_folder(folder: Path) -> dict[str, HostShare]:
    """Return what each host did for all applications whose event logs are in a folder."""
    total: dict[str, HostShare] = {}
    for log in sorted(folder.iterdir()):
        with log.open(encoding="utf-8") as lines:
            for host, share in shares(lines).items():
                total[host] = total.get(host, HostShare()) + share
    return dict(sorted(total.items()))


def shares(lines: Iterable[str]) -> dict[str, HostShare]:
    """Return what each host did for one application. `lines` are those of its event log, in order."""
    found: dict[str, HostShare] = {}
    reading: set[int] = set()
    for event in map(json.loads, lines):
        match event["Event"]:
            case "SparkListenerStageSubmitted" if _reads_by_jdbc(event["Stage Info"]):
                reading.add(event["Stage Info"]["Stage ID"])
            case "SparkListenerTaskEnd" if event["Task End Reason"]["Reason"] == "Success":
                host = event["Task Info"]["Host"]
                share = _share(event["Task Metrics"], event["Stage ID"] in reading)
                found[host] = found.get(host, HostShare()) + share
    return found


def _reads_by_jdbc(stage: dict[str, Any]) -> bool:
    return any(JDBC_SCAN in rdd["Name"] for rdd in stage["RDD Info"])


def _share(metrics: dict[str, Any], may_read: bool) -> HostShare:
    rows = metrics["Input Metrics"]["Records Read"] if may_read else 0
    return HostShare(1, int(rows > 0), rows, metrics["Output Metrics"]["Bytes Written"])
