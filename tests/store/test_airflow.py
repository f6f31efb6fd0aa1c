"""A DAG whose target is on S3: the login comes from a connection, and Airflow keeps it nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.object_store import ACCESS_KEY, SECRET_KEY
from support.stored import COMMAND_TIMEOUT_S, ROOT, StoredPipeline, changed, filled

from airflow_provider_db2cdc.sandbox.server.state import DRIVER_OPTIONS

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1200)]

DAG = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcTaskGroup

with DAG("lake"):
    Db2CdcTaskGroup(
        "sales", db2_conn_id="db2", spark_conn_id="spark", store_conn_id="lake", target={target!r},
        table_include_list=[r"{schema}\\..*"], spark_conf={conf!r}, spark_jars={jars!r},
        target_deletion_vectors="false", default_args={{"retries": 0}},
    )
"""
RUN = """
import sys
from pathlib import Path
from airflow.utils.db import initdb
from airflow_provider_db2cdc.demo.services.dag_runs import dag_bag

initdb()
path = Path(sys.argv[1])
bag = dag_bag(path, path.parent)
assert bag.import_errors == {}, bag.import_errors
for _ in range(2):
    run = bag.dags["lake"].test()
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    print("STATES", run.state, states)
    assert str(run.state) == "success", states
    input()
"""


def airflow_environment(pipeline: StoredPipeline, home: Path) -> dict[str, str]:
    """The environment of an Airflow of its own, with the three connections."""
    box = pipeline.source.sandbox
    db2 = {"conn_type": "ibmdb2", "host": "127.0.0.1", "port": box.port, "schema": box.database}
    connections = {
        "DB2": {**db2, "login": box.user, "password": box.password, "extra": DRIVER_OPTIONS},
        "SPARK": {"conn_type": "spark", "host": "local[2]"},
        "LAKE": {"conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY},
    }
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "PYTHONPATH": str(ROOT),
        **{f"AIRFLOW_CONN_{name}": json.dumps(values) for name, values in connections.items()},
    }
    return {name: value for name, value in {**os.environ, **own}.items() if not name.startswith("AWS_")}


def test_a_dag_with_its_target_on_s3_keeps_the_secret_to_itself(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    table = filled(pipeline)
    home = pipeline.folder / "airflow"
    (home / "dags").mkdir(parents=True)
    path = home / "dags" / "lake.py"
    jars = str(ROOT / "build" / "jars")
    path.write_text(DAG.format(target=pipeline.target, schema=table.schema, conf=pipeline.conf, jars=jars))
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(path)],
        env=airflow_environment(pipeline, home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # The second run finds its offsets in Airflow's Variables: no local folder has any.
    assert run.stdout is not None
    printed: list[str] = []
    for line in run.stdout:
        printed.append(line)
        if line.startswith("STATES") and len([one for one in printed if one.startswith("STATES")]) == 1:
            pipeline.assert_equal(table)
            changed(pipeline, table, 1000)
            assert run.stdin is not None
            run.stdin.write("\n\n")
            run.stdin.close()
    assert run.wait(COMMAND_TIMEOUT_S) == 0, "".join(printed)
    run.stdout.close()
    pipeline.assert_equal(table)
    assert SECRET_KEY not in "".join(printed)
    kept = [str(file) for file in home.rglob("*") if file.is_file() and SECRET_KEY.encode() in file.read_bytes()]
    assert kept == []
    assert not list(pipeline.folder.rglob("offsets.json"))
