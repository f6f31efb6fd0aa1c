"""Further specs for a running job: both ends, in two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

from support.job_samples import job_spec

from airflow_provider_db2cdc.cdc.document import RESULT_MARK
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.submit.child import run_child
from airflow_provider_db2cdc.submit.folder import job_folder
from airflow_provider_db2cdc.submit.handover import Handover, ResultReader

SPECS = [replace(job_spec("ORDERS"), run_id=f"run {number}") for number in range(1, 5)]
JOB = """
import json
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.entry import run_entry

def run(spec):
    if spec.run_id == {fails!r}:
        raise ValueError("broken")
    status = "failed" if spec.run_id == {table_fails!r} else "applied"
    return JobResult(spec.pipeline, spec.run_id, (TableResult(TableId("S", "T"), status),))

raise SystemExit(run_entry(None, JobSpec.from_json, run))
"""


def run_all(specs: list[JobSpec], fails: str = "", table_fails: str = "") -> tuple[int, list[str], str | None]:
    """Run a job with these specs. Return its exit code, the runs that had a result, and the last result's run."""
    code_text = JOB.format(fails=fails, table_fails=table_fails)
    done: list[str] = []

    def following(result: JobResult) -> JobSpec | None:
        done.append(result.run_id)
        return specs[len(done)] if len(done) < len(specs) else None

    with job_folder(specs[0].to_json()) as path:
        results = ResultReader(Handover(path, specs[0], following))
        argv = [sys.executable, "-c", code_text, "--spec", str(path), "--repeat"]
        code = run_child(argv, {"PYTHONPATH": ":".join(sys.path)}, results.take)
    return code, done, None if results.newest is None else json.loads(results.newest)["run_id"]


def test_a_job_runs_the_spec_that_follows_each_result_and_then_ends() -> None:
    assert run_all(SPECS) == (0, ["run 1", "run 2", "run 3", "run 4"], "run 4")


def test_a_job_without_a_further_spec_ends_after_its_first_result() -> None:
    assert run_all(SPECS[:1]) == (0, ["run 1"], "run 1")


def test_a_job_that_fails_after_a_result_has_no_result() -> None:
    """Else the task would succeed, although its last tick did not."""
    assert run_all(SPECS, fails="run 3") == (1, ["run 1", "run 2"], None)


def test_a_job_with_a_failed_table_ends_with_an_error() -> None:
    assert run_all(SPECS[:2], table_fails="run 2") == (1, ["run 1", "run 2"], "run 2")
    assert run_all(SPECS, table_fails="run 2")[:2] == (1, ["run 1", "run 2"])


def test_a_waiting_job_ends_when_the_process_that_started_it_does() -> None:
    with job_folder(SPECS[0].to_json()) as path:
        argv = [sys.executable, "-c", JOB.format(fails="", table_fails=""), "--spec", str(path), "--repeat"]
        job = subprocess.Popen(argv, env={"PYTHONPATH": ":".join(sys.path)}, stdout=subprocess.PIPE, text=True)
        assert job.stdout is not None
        assert job.stdout.readline().startswith(RESULT_MARK)
        assert job.poll() is None
    assert job.wait(20) != 0
    job.stdout.close()
