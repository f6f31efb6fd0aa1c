"""Runs a DAG in this process's AIRFLOW_HOME, once for each line on standard input, and reports each run as JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

RUN_MARK = "DB2CDC_RUN "
APPLY = "apply"
OFFSETS = "~offsets"
"""How the key of the Variable ends that holds a pipeline's offsets."""


def main(dag_id: str) -> int:
    """Do a DAG run for each line on standard input."""
    dag = _load(dag_id)
    for _ in sys.stdin:
        report = _report(dag.test())
        sys.stdout.write(f"{RUN_MARK}{json.dumps(report)}\n")
        sys.stdout.flush()
    return 0


def dag_bag(path: Path, folder: Path) -> Any:
    """Return the DAGs of a file or folder as Airflow finds them. `folder` is that of their bundle."""
    try:
        module = import_module("airflow.dag_processing.dagbag")
    except ModuleNotFoundError:
        module = import_module("airflow.models.dagbag")  # Where Airflow 3.1 has it.
    return module.DagBag(dag_folder=path, bundle_path=folder)


def _load(dag_id: str) -> Any:
    from airflow.configuration import conf

    folder = Path(conf.get_mandatory_value("core", "dags_folder"))
    bag = dag_bag(folder, folder)
    if dag_id not in bag.dags:
        raise SystemExit(f"DAG {dag_id} is not in {folder}: {bag.import_errors or 'no file has it'}")
    return bag.dags[dag_id]


def _report(run: Any) -> dict[str, Any]:
    """Return what Airflow's database holds of a run: states, the apply task's XCom, and the offsets' Variable."""
    from airflow.models import TaskInstance, Variable
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        tasks = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).all()
        values = select(XComModel).where(XComModel.run_id == run.run_id, XComModel.key == "return_value")
        results = [xcom for xcom in session.scalars(values) if xcom.task_id.rpartition(".")[2] == APPLY]
        variable: Any = session.scalars(select(Variable).where(Variable.key.endswith(OFFSETS))).one_or_none()
        return {
            "run_id": run.run_id,
            "state": str(run.state),
            "tasks": {task.task_id: str(task.state) for task in tasks},
            "result": results[0].value if results else None,
            "offsets": None if variable is None else variable.get_val(),
        }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
