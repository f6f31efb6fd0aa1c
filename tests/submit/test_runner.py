from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.document import LEASE_LOST
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, SourceSpec, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import SparkConfig
from airflow_provider_db2cdc.errors import ConfigurationError, TickFailedError
from airflow_provider_db2cdc.submit.child import run_child
from airflow_provider_db2cdc.submit.folder import new_error_log
from airflow_provider_db2cdc.submit.home import spark_environment, spark_home
from airflow_provider_db2cdc.submit.output import cause_of
from airflow_provider_db2cdc.submit.runner import Login, run_job

ZERO = Lsn(bytes(16))
SPEC = JobSpec(
    "sales",
    "run",
    "0a",
    0,
    "/lake",
    SourceSpec("jdbc:db2://h:1/D", "D", "sales", "ASNCDC"),
    CapturePosition(ZERO, "", "", 0.0),
    (),
)
RESULT = JobResult("sales", "run", (TableResult(TableId("S", "T"), "failed", error="x"),))

# All that a job needs: no folder of jars is looked at.
PACKAGES = ("io.delta:delta-spark_2.13:4.0.0", "com.ibm.db2:jcc:12.1.3.0")


@pytest.fixture(autouse=True)
def own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep error logs out of the user's cache."""
    monkeypatch.setenv("DB2CDC_LOGS", str(tmp_path / "logs"))


FAKE = """#!{python}
import json, os, sys
spec = json.load(open(sys.argv[sys.argv.index("--spec") + 1]))
print("warning of the JVM", flush=True)
print("argv", *sys.argv, flush=True)
print("login", os.environ["DB2CDC_USER"], len(os.environ["DB2CDC_PASSWORD"]), spec["pipeline"], flush=True)
{body}
"""


def fake_spark(folder: Path, body: str) -> SparkConfig:
    """A spark-submit that reads the spec as the real job does and then does what `body` says."""
    binary = folder / "spark-submit"
    binary.write_text(FAKE.format(python=sys.executable, body=body))
    binary.chmod(0o755)
    return SparkConfig(binary=str(binary), packages=PACKAGES)


def test_result_line_is_read_and_all_others_pass_through(tmp_path: Path) -> None:
    spark = fake_spark(tmp_path, f"print('DB2CDC_RESULT ' + {RESULT.to_json()!r}); sys.exit(1)")
    lines: list[str] = []
    assert run_job(SPEC, spark, Login("cdc", "s3cret"), lines.append) == RESULT
    assert lines[0] == "warning of the JVM"
    assert "login cdc 6 sales" in lines
    assert not any("DB2CDC_RESULT" in line for line in lines)


def test_secrets_are_not_on_the_command_line(tmp_path: Path) -> None:
    spark = fake_spark(tmp_path, f"print('DB2CDC_RESULT ' + {RESULT.to_json()!r})")
    lines: list[str] = []
    run_job(SPEC, spark, Login("cdc", "s3cret"), lines.append)
    [argv] = [line for line in lines if line.startswith("argv")]
    assert "--py-files" in argv
    assert "s3cret" not in argv


def test_no_result_is_an_error_with_the_exit_code(tmp_path: Path) -> None:
    with pytest.raises(TickFailedError, match="exit code 3"):
        run_job(SPEC, fake_spark(tmp_path, "sys.exit(3)"), Login("cdc", "p"), lambda line: None)


ENDINGS = {
    "its own error": (
        ["Caused by: java.io.IOException: x", "TargetError: a disk is full (x). Free space.", "WARN: later"],
        "a disk is full (x). Free space.",
    ),
    "a traceback": (["Traceback:", "  File x", "ModuleNotFoundError: No module named 'x'"], "No module named 'x'"),
    "the JVM": (
        [
            'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: g#a;1: not found]',
            "\tat org.apache.spark.deploy.SparkSubmit$.main(SparkSubmit.scala)",
        ],
        "java.lang.RuntimeException: [unresolved dependency: g#a;1: not found]",
    ),
    "the JVM's innermost": (
        ["java.lang.RuntimeException: x", "\tat a.b", "Caused by: java.io.IOException: No space left on device"],
        "java.io.IOException: No space left on device",
    ),
    "spark-submit": (["Error: Master must either be yarn or start with spark"], "Error: Master must either be yarn"),
    "the shell": (["spark-submit: line 7: cannot create temp file: No space left on device"], "No space left"),
    "nothing": (["12:00:00 WARN Utils: something"], "its output does not say why"),
}


@pytest.mark.parametrize(("lines", "cause"), ENDINGS.values(), ids=ENDINGS)
def test_cause_comes_first_and_the_output_is_kept_in_a_file(tmp_path: Path, lines: list[str], cause: str) -> None:
    spark = fake_spark(tmp_path, f"print({chr(10).join(lines)!r}); sys.exit(1)")
    with pytest.raises(TickFailedError) as failed:
        run_job(SPEC, spark, Login("cdc", "s3cret"), lambda line: None)
    assert failed.value.problem.startswith("Spark ended with exit code 1 and without a result: ")
    assert cause in failed.value.problem
    [log] = (tmp_path / "logs").iterdir()
    assert f"The end of Spark's output is in {log}." in failed.value.remedy
    assert lines[-1] in log.read_text().splitlines()
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_fifty_newest_logs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB2CDC_LOGS", str(tmp_path))
    for number in range(60):
        (tmp_path / f"{number}.log").touch()
        os.utime(tmp_path / f"{number}.log", (number, number))
    new = new_error_log("my pipeline/x")
    assert new.name.startswith("my-pipeline-x-")
    assert {int(path.stem) for path in tmp_path.iterdir()} == {*range(11, 60)}


def test_command_that_takes_too_long_is_ended() -> None:
    started = time.monotonic()
    assert run_child(["/bin/sh", "-c", "sleep 300"], {"PATH": "/usr/bin:/bin"}, print, timeout_s=0.5) != 0
    assert time.monotonic() < started + 30


def test_missing_binary_is_named() -> None:
    with pytest.raises(ConfigurationError, match="/nowhere/spark-submit"):
        run_job(
            SPEC, SparkConfig(binary="/nowhere/spark-submit", packages=PACKAGES), Login("u", "p"), lambda line: None
        )


# A shell starts background jobs with SIGINT ignored, and children inherit that.
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from airflow_provider_db2cdc.submit.child import run_child
def on_line(line): print(line, flush=True)
run_child(["/bin/sh", "-c", "sleep 300 & echo $!; wait"], {"PATH": "/usr/bin:/bin"}, on_line)
"""


def test_interrupt_ends_the_child_and_what_it_started() -> None:
    root = str(Path(__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root
    )
    with parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        parent.send_signal(signal.SIGINT)
        assert parent.wait(30) != 0
    deadline = time.monotonic() + 10
    while _alive(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(grandchild)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_spark_finds_its_home_and_this_python() -> None:
    env = spark_environment(environ={})
    assert env["SPARK_HOME"] == str(spark_home())
    assert env["PYSPARK_PYTHON"] == env["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_a_named_spark_and_a_chosen_python_are_used() -> None:
    env = spark_environment("/opt/spark/bin/spark-submit", "yarn", {"PYSPARK_PYTHON": "/p"})
    assert env["PYSPARK_PYTHON"] == "/p"
    assert not {"SPARK_HOME", "SPARK_LOCAL_IP"} & set(env)


def test_a_child_speaks_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    path = tmp_path / "said.py"
    path.write_text("print('Ş 😀')\nopen('Ş', 'w').close()\n", "utf-8")
    lines: list[str] = []
    code = f"import os, runpy; os.chdir({str(tmp_path)!r}); runpy.run_path({str(path)!r})"
    env = spark_environment(environ={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert run_child([sys.executable, "-c", code], env, lines.append) == 0
    assert lines == ["Ş 😀"]
    assert (tmp_path / "Ş").exists()


def test_the_exit_code_of_a_lost_lease_is_a_cause() -> None:
    assert "lost the lease of its target" in cause_of(["java.io.IOException: other"], LEASE_LOST)
    assert cause_of(["java.io.IOException: other"], 1) == "java.io.IOException: other"
