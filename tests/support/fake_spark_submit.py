# ruff: noqa: T201
"""A stand-in for spark-submit: reads the JobSpec as the real job does, touches no data, and prints a JobResult.

The job that tries a connection finds that it works.

Next to itself it leaves `call.json` (its arguments and environment, the spec) for the test to look at. The environment
says what else it does: FAKE_FAIL (names of tables that fail), FAKE_DEATH (a last line, without a result), FAKE_SLEEP_S
(how long it takes), FAKE_REFUSE (ids of signals that are refused), FAKE_VERDICT (fields of each table's verdict in a
verification, by default it is equal), FAKE_FOUND (fields of what a repair finds of each table, by default nothing
differs), FAKE_DEATH_AT (the number of the spec that it dies of). It appends each spec to `specs.jsonl`.
"""

import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cdc.signal.signal import Signal


def outcome(task: dict[str, Any], failing: list[str]) -> dict[str, Any]:
    table = task["schema"]["table"]
    line = {"table": table, "lsn": task["stored_lsn"], "batch": 1 if task["stored_lsn"] else None, "duration_s": 0.1}
    line["revision"] = task["revision"]
    if table["name"] in failing:
        return {**line, "status": "failed", "error": "the target cannot be written. Grant write access to it."}
    if task["stored_lsn"] and not task["rows"]:
        return {**line, "status": "unchanged", "lsn": task["upto"], "batch": task["batch"], "log_id": "log"}
    applied = {
        "lsn": task["upto"],
        "batch": task["batch"] + 1,
        "after": task["stored_lsn"],
        "creates": task["rows"],
        "reads": 2,
    }
    return {**line, **applied, "status": "applied", "rows": 2, "commit_ts_ms": 1_700_000_000_000, "log_id": "log"}


def heard(signal: dict[str, Any], refused: list[str]) -> dict[str, Any]:
    asked = Signal(**{name: signal[name] for name in ("id", "type", "data", "channel")}).asked
    outcome = {"id": signal["id"], "channel": signal["channel"], "asked": asked}
    if signal["id"] in refused:
        return {**outcome, "status": "refused", "reason": "there is no such table"}
    return {**outcome, "status": "done"}


def verified(spec: dict[str, Any]) -> int:
    verdict = {"status": "equal", **json.loads(os.environ.get("FAKE_VERDICT", "{}"))}
    tables = [{"table": task["schema"]["table"], **verdict} for task in spec["tables"]]
    result = {"pipeline": spec["pipeline"], "verification": spec["verification"], "tables": tables, "version": 1}
    print("DB2CDC_RESULT " + json.dumps(result))
    return 1 if verdict["status"] in ("different", "failed") else 0


def repaired(task: dict[str, Any], failing: list[str]) -> dict[str, Any]:
    table = task["schema"]["table"]
    if table["name"] in failing:
        return {"table": table, "status": "failed", "error": "the target cannot be written."}
    found = {"commits": 1, "events": 2, "keys": 2, **json.loads(os.environ.get("FAKE_FOUND", "{}"))}
    differs = found.get("events_added") or found.get("rows_corrected")
    return {"table": table, "status": "applied" if differs else "unchanged", "repair": found}


def maintained(spec: dict[str, Any], failing: list[str]) -> int:
    errors = [(table, "the table is full. Wait." if table["name"] in failing else "") for table in spec["tables"]]
    tables = [{"table": table, "error": error} for table, error in errors]
    result = {"pipeline": spec["pipeline"], "run_id": spec["run_id"], "tables": tables, "version": 1}
    print("DB2CDC_RESULT " + json.dumps(result))
    return 1 if any(table["error"] for table in tables) else 0


def main() -> int:
    if "--url" in sys.argv:
        print("DB2CDC_RESULT " + json.dumps({"problem": "", "remedy": ""}))
        return 0
    path = Path(sys.argv[sys.argv.index("--spec") + 1])
    spec = json.loads(path.read_text())
    mode = stat.S_IMODE(path.parent.stat().st_mode)
    call = {"argv": sys.argv[1:], "env": dict(os.environ), "spec": spec, "spec_folder_mode": mode}
    call["has_pipe"] = path.with_name("parent.pipe").is_fifo()
    Path(__file__).with_name("call.json").write_text(json.dumps(call))
    time.sleep(float(os.environ.get("FAKE_SLEEP_S", "0")))
    print("26/01/02 03:04:05 INFO SparkContext: Running Spark version 4.2.0")
    print("03:04:05 WARN TaskSetManager: something to know")
    print("DB2CDC table=S.T began", flush=True)
    print("DB2CDC snapshot 77 (incremental) running: 1 of 4 chunks, 10 rows, about 30 s more", flush=True)
    number, code = 1, done(path, 1)
    while "--repeat" in sys.argv and code == 0:
        number += 1
        following = path.with_name(f"spec-{number}.json")
        while not following.exists():
            time.sleep(0.05)
        if not following.read_text():
            break
        code = done(following, number)
    return code


def done(path: Path, number: int) -> int:
    spec = json.loads(path.read_text())
    with Path(__file__).with_name("specs.jsonl").open("a") as specs:
        specs.write(json.dumps(spec) + "\n")
    if number == int(os.environ.get("FAKE_DEATH_AT", "0")):
        sys.exit("no space left")
    if death := os.environ.get("FAKE_DEATH"):
        sys.exit(death)
    if "verification" in spec:
        return verified(spec)
    failing = os.environ.get("FAKE_FAIL", "").split()
    if "retention_s" in spec:
        return maintained(spec, failing)
    work = repaired if spec.get("repair") else outcome
    tables = [work(task, failing) for task in spec["tables"]]
    signals = [heard(signal, os.environ.get("FAKE_REFUSE", "").split()) for signal in spec["signals"]]
    tables += [{**rejected, "status": "failed", "is_rejected": True} for rejected in spec["rejected"]]
    result = {"pipeline": spec["pipeline"], "run_id": spec["run_id"], "version": 1, "tables": tables}
    result |= {"signals": signals, "planned_at_ms": spec["planned_at_ms"], "interval": spec["interval"]}
    if spec.get("repair"):
        result["repair"] = spec["repair"]["repair"]
    print("DB2CDC_RESULT " + json.dumps(result), flush=True)
    return 1 if any(table["status"] == "failed" for table in tables) else 0


if __name__ == "__main__":
    sys.exit(main())
