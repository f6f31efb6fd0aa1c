from pathlib import Path

import pytest

pytestmark = pytest.mark.airflow

DAGS = Path(__file__).parents[2] / "dags"

CONFIG = """
pipeline: shop
target: lake/shop
table.include.list: 'SHOP\\..*'
spark: {master: "spark://unused:7077", conf: {spark.driver.memory: 700m}}
"""


@pytest.fixture
def dags(airflow_db):
    """Load a shipped DAG file and return its DAGs."""
    from airflow.dag_processing.dagbag import DagBag

    def load(name):
        bag = DagBag(dag_folder=DAGS / name, bundle_path=DAGS)
        assert bag.import_errors == {}
        return bag.dags

    return load


def test_every_shipped_dag_file_is_tested_here():
    assert {path.name for path in DAGS.glob("*.py")} == {"db2cdc_pipeline.py", "db2cdc_sales.py"}


def test_configured_dag_comes_from_its_file_and_environment(dags, tmp_path, monkeypatch):
    path = tmp_path / "shop.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("DB2CDC_CONFIG", str(path))
    monkeypatch.setenv("DB2CDC_DB2_CONN_ID", "db2_shop")
    monkeypatch.setenv("DB2CDC_SPARK_CONN_ID", "spark_shop")
    [dag] = dags("db2cdc_pipeline.py").values()
    assert (dag.dag_id, dag.max_active_runs, dag.catchup) == ("db2cdc_shop", 1, False)
    assert dag.task_ids == ["tick.plan", "tick.apply", "tick.commit", "tick.outcome"]
    plan, apply = dag.get_task("tick.plan"), dag.get_task("tick.apply")
    assert (plan.config.pipeline, plan.config.target) == ("shop", str(tmp_path / "lake/shop"))
    assert (plan.db2_conn_id, apply.db2_conn_id, apply.spark_conn_id) == ("db2_shop", "db2_shop", "spark_shop")
    assert apply.conf == {"spark.driver.memory": "700m"}


def test_schedule_can_be_set_and_taken_away(dags, tmp_path, monkeypatch):
    path = tmp_path / "shop.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("DB2CDC_CONFIG", str(path))
    monkeypatch.setenv("DB2CDC_DAG_ID", "mine")
    monkeypatch.setenv("DB2CDC_SCHEDULE", "@hourly")
    assert dags("db2cdc_pipeline.py")["mine"].schedule == "@hourly"
    monkeypatch.setenv("DB2CDC_SCHEDULE", "none")
    assert dags("db2cdc_pipeline.py")["mine"].schedule is None


def test_without_a_configuration_there_is_no_dag_and_no_error(dags, monkeypatch):
    monkeypatch.delenv("DB2CDC_CONFIG", raising=False)
    assert dags("db2cdc_pipeline.py") == {}


def test_example_pipeline_and_its_consumer_load(dags):
    found = dags("db2cdc_sales.py")
    assert set(found) == {"db2cdc_sales", "db2cdc_sales_report"}
    outlets = found["db2cdc_sales"].get_task("sales.commit").outlets
    assert [outlet.name for outlet in outlets] == ["db2cdc.sales"]
