import json
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.demo.cluster.spread import HostShare, event_log_conf, shares, shares_of_folder


def stage(number: int, *rdds: str) -> str:
    info = {"Stage ID": number, "RDD Info": [{"Name": name} for name in rdds]}
    return json.dumps({"Event": "SparkListenerStageSubmitted", "Stage Info": info})


def task(number: int, host: str, rows: int, written: int, reason: str = "Success") -> str:
    metrics = {"Input Metrics": {"Records Read": rows}, "Output Metrics": {"Bytes Written": written}}
    end: dict[str, Any] = {"Stage ID": number, "Task End Reason": {"Reason": reason}, "Task Info": {"Host": host}}
    return json.dumps({"Event": "SparkListenerTaskEnd", **end, "Task Metrics": metrics})


LINES = [
    json.dumps({"Event": "SparkListenerLogStart"}),
    stage(1, "JDBCRDD", "MapPartitionsRDD"),
    stage(2, "FileScanRDD"),
    task(1, "a", 10, 100),
    task(1, "b", 0, 1),
    task(1, "b", 7, 70, "ExecutorLostFailure"),
    task(2, "b", 99, 5),
]


def test_readers_are_the_tasks_that_read_by_jdbc_and_were_not_lost() -> None:
    assert shares(LINES) == {"a": HostShare(1, 1, 10, 100), "b": HostShare(2, 0, 0, 6)}


def test_the_logs_of_all_applications_are_added(tmp_path: Path) -> None:
    for name in ("app-2", "app-1"):
        (tmp_path / name).write_text("\n".join(LINES))
    assert shares_of_folder(tmp_path) == {"a": HostShare(2, 2, 20, 200), "b": HostShare(4, 0, 0, 12)}
    assert event_log_conf(tmp_path)["spark.eventLog.dir"] == f"file://{tmp_path}"
