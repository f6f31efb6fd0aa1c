"""What Spark did in a block of ticks, from the event logs: jobs, rows, bytes, and the share of each worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.demo.cluster.spread import shares_of_folder

MB = 1_000_000


def work(events: Path) -> dict[str, Any]:
    """Return what the applications did whose event logs are in a folder."""
    jobs, totals = 0, dict.fromkeys(("read back", "written", "shuffled", "spilled"), 0)
    gc_ms = peak = 0
    for event in _events(events):
        match event["Event"]:
            case "SparkListenerJobStart":
                jobs += 1
            case "SparkListenerTaskEnd" if metrics := event.get("Task Metrics"):
                totals["read back"] += metrics["Input Metrics"]["Bytes Read"]
                totals["written"] += metrics["Output Metrics"]["Bytes Written"]
                totals["shuffled"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                totals["spilled"] += metrics["Disk Bytes Spilled"]
                gc_ms += metrics["JVM GC Time"]
                peak = max(peak, metrics["Peak Execution Memory"])
    shares = shares_of_folder(events)
    return {
        "Spark jobs": jobs,
        **{f"{name} (MB)": round(count / MB) for name, count in totals.items()},
        "executors' GC (s)": round(gc_ms / 1000, 1),
        "peak execution memory of a task (MB)": round(peak / MB),
        "rows by JDBC": sum(share.source_rows for share in shares.values()),
        "by worker": {
            host: {"readers": share.readers, "rows": share.source_rows, "written (MB)": round(share.written_bytes / MB)}
            for host, share in shares.items()
        },
    }


def _events(folder: Path) -> Iterator[Any]:
    for log in sorted(folder.iterdir()):
        with log.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
