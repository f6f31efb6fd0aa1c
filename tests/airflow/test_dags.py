from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import ParamValidationError
from support.job_samples import UNTOUCHED

from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.signal.action import ACTIONS
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.demo.services.dag_runs import dag_bag
from airflow_provider_db2cdc.operators.signal import FORM, form_data

pytestmark = pytest.mark.airflow

DAGS = Path(__file__).parents[2] / "dags"

CONFIGURED = ["db2cdc_maintenance.py", "db2cdc_pipeline.py", "db2cdc_snapshot.py", "db2cdc_verify.py"]
"""DAGs of a configuration file."""

CONFIG = """
pipeline: shop
target: lake/shop
table.include.list: 'SHOP\\..*'
spark: {master: "spark://unused:7077", conf: {spark.driver.memory: 700m}}
"""


Dags = Callable[[str], dict[str, Any]]
SnapshotDag = Callable[..., Any]


@pytest.fixture
def dags(airflow_db: None) -> Dags:
    """Load a shipped DAG file and return its DAGs."""

    def load(name: str) -> Any:
        bag = dag_bag(DAGS / name, DAGS)
        assert bag.import_errors == {}
        return bag.dags

    return load


def test_every_shipped_dag_file_is_tested_here() -> None:
    names = {
        "db2cdc_consumer.py", "db2cdc_maintenance.py", "db2cdc_pipeline.py", "db2cdc_sales.py", "db2cdc_snapshot.py",
        "db2cdc_verify.py",
    }  # fmt: skip
    assert {path.name for path in DAGS.glob("*.py")} == names


def test_configured_dag_comes_from_its_file_and_environment(
    dags: Dags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("name", CONFIGURED)
def test_documented_file_needs_no_password_here(dags: Dags, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Nor does its DAG take the id of the example's, which is for a pipeline of the same name."""
    monkeypatch.setenv("DB2CDC_CONFIG", str(DAGS.parent / "docs" / "examples" / "pipeline.yaml"))
    monkeypatch.delenv("DB2CDC_PASSWORD", raising=False)
    [dag_id] = dags(name)
    assert dag_id not in dags("db2cdc_sales.py")


def test_schedule_can_be_set_and_taken_away(dags: Dags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("DB2CDC_CONFIG", str(path))
    monkeypatch.setenv("DB2CDC_DAG_ID", "mine")
    monkeypatch.setenv("DB2CDC_SCHEDULE", "@hourly")
    assert dags("db2cdc_pipeline.py")["mine"].schedule == "@hourly"
    monkeypatch.setenv("DB2CDC_SCHEDULE", "none")
    assert dags("db2cdc_pipeline.py")["mine"].schedule is None


def test_missed_runs_are_caught_up_from_a_given_time(
    dags: Dags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(f"{CONFIG}end.at: interval\n", encoding="utf-8")
    monkeypatch.setenv("DB2CDC_CONFIG", str(path))
    monkeypatch.setenv("DB2CDC_SCHEDULE", "@hourly")
    monkeypatch.setenv("DB2CDC_CATCHUP_FROM", "2026-01-02T03:00:00+02:00")
    [dag] = dags("db2cdc_pipeline.py").values()
    assert (dag.catchup, dag.start_date.isoformat()) == (True, "2026-01-02T01:00:00+00:00")
    assert (dag.max_active_runs, dag.get_task("tick.plan").config.end_at) == (1, "interval")


@pytest.mark.parametrize("name", CONFIGURED)
def test_without_a_configuration_there_is_no_dag_and_no_error(
    dags: Dags, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("DB2CDC_CONFIG", raising=False)
    assert dags(name) == {}


@pytest.fixture
def snapshot_dag(dags: Dags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotDag:
    """The DAG with the form, for a pipeline with these further lines in its file."""

    def load(text: str = CONFIG) -> Any:
        path = tmp_path / "shop.yaml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("DB2CDC_CONFIG", str(path))
        [dag] = dags("db2cdc_snapshot.py").values()
        return dag

    return load


def test_form_sends_to_its_pipeline_and_follows(snapshot_dag: SnapshotDag) -> None:
    dag = snapshot_dag()
    assert (dag.dag_id, dag.schedule, dag.catchup) == ("db2cdc_shop_snapshot", None, False)
    send, follow = dag.get_task("send"), dag.get_task("follow")
    assert send.trigger_dag_id == "db2cdc_shop"
    assert follow.pipeline == "shop"
    assert follow.upstream_task_ids == {"send"}


def test_form_says_which_tables_there_are(snapshot_dag: SnapshotDag) -> None:
    assert r"This pipeline carries `SHOP\..*`." in snapshot_dag().params.get_param("tables").description
    everything = CONFIG.replace("table.include.list: 'SHOP\\..*'", "")
    assert "carries all captured tables" in snapshot_dag(everything).params.get_param("tables").description


def test_form_suggests_the_tables_of_the_last_tick(snapshot_dag: SnapshotDag, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "examples" not in snapshot_dag().params.get_param("known_tables").schema
    kept = PipelineSummary(tables=(TableId("SHOP", "ORDERS"), TableId("SHOP", 'a.b "c"')))
    monkeypatch.setenv("AIRFLOW_VAR_DB2CDC.SHOP~SUMMARY", kept.to_json())
    schema = snapshot_dag().params.get_param("known_tables").schema
    assert schema["values_display"] == {'"SHOP"."ORDERS"': "SHOP.ORDERS", '"SHOP"."a.b ""c"""': 'SHOP.a.b "c"'}
    assert schema["examples"] == [*schema["values_display"]]
    monkeypatch.setenv("AIRFLOW_VAR_DB2CDC.SHOP~SUMMARY", "spoilt")
    assert "examples" not in snapshot_dag().params.get_param("known_tables").schema


def test_an_unchanged_form_sends_only_what_every_action_uses(snapshot_dag: SnapshotDag) -> None:
    dag = snapshot_dag()
    assert dag.params.dump() == UNTOUCHED
    for action in dag.params.get_param("action").schema["enum"]:
        asked = {"data-collections": ["S.T"]} if "tables" in FORM[action] and action != "stop-snapshot" else {}
        tables = {"tables": ["S.T"]} if asked else {}
        assert form_data({"params": {**dag.params.dump(), "action": action, **tables}}) == asked


def test_form_has_words_for_each_action(snapshot_dag: SnapshotDag) -> None:
    """Errors name the actions by these words."""
    schema = snapshot_dag().params.get_param("action").schema
    assert list(schema["values_display"]) == schema["enum"] == [*FORM]
    assert schema["values_display"] == {action: ACTIONS[action] for action in FORM}
    words = {schema["values_display"][action] for action in ("restart-table", "restore-offset")}
    assert words == {"Restart a table", "Restore a lost offset"}


VALID = [
    {},
    {"action": "stop-snapshot", "tables": None, "conditions": None, "surrogate_key": None, "type": None},
    {
        "known_tables": ['"SHOP"."ORDERS"'],
        "tables": ["SHOP.ORDERS", '"a b"."c.d"', "SHOP\\..*"],
        "type": "blocking",
        "conditions": ["SHOP.ORDERS: ID > 5"],
        "surrogate_key": "ID",
    },
]


@pytest.mark.parametrize("conf", VALID, ids=["untouched", "stop", "everything"])
def test_form_takes(snapshot_dag: SnapshotDag, conf: dict[str, Any]) -> None:
    params = snapshot_dag().params
    params.update(conf)
    assert conf.items() <= params.validate().items()


INVALID = [
    {"action": "drop"},
    {"action": None},
    {"tables": "SHOP.ORDERS"},
    {"tables": [1]},
    {"type": "initial"},
    {"type": ""},
    {"conditions": "SHOP.ORDERS: ID > 5"},
    {"conditions": [5]},
    {"surrogate_key": 5},
]


@pytest.mark.parametrize("conf", INVALID, ids=str)
def test_form_refuses(snapshot_dag: SnapshotDag, conf: dict[str, Any]) -> None:
    params = snapshot_dag().params
    with pytest.raises(ParamValidationError):
        params.update(conf)


def test_example_pipeline_and_its_consumer_load(dags: Dags) -> None:
    found = dags("db2cdc_sales.py")
    assert set(found) == {"sales_cdc", "sales_cdc_report"}
    outlets = found["sales_cdc"].get_task("sales.commit").outlets
    assert [outlet.name for outlet in outlets] == ["db2cdc.sales"]


def test_verification_has_its_own_schedule_and_form(
    dags: Dags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("DB2CDC_CONFIG", str(path))
    monkeypatch.setenv("DB2CDC_VERIFY_SCHEDULE", "@weekly")
    [dag] = dags("db2cdc_verify.py").values()
    assert (dag.dag_id, dag.schedule, dag.catchup) == ("db2cdc_shop_verify", "@weekly", False)
    assert dag.params.dump() == {"tables": [], "quick": False, "show_keys": False}
    verify = dag.get_task("verify")
    assert (verify.config.pipeline, verify.retries, verify.conf) == ("shop", 2, {"spark.driver.memory": "700m"})
    assert {"config", "tables", "quick", "show_keys", "verification_id"} <= {*verify.template_fields}


def test_maintenance_has_its_own_schedule_and_needs_no_source(
    dags: Dags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("DB2CDC_CONFIG", str(path))
    [dag] = dags("db2cdc_maintenance.py").values()
    assert (dag.dag_id, dag.schedule, dag.catchup) == ("db2cdc_shop_maintenance", "@daily", False)
    assert dag.params.dump() == {"tables": [], "report_only": False}
    maintain = dag.get_task("maintain")
    assert (maintain.config.pipeline, maintain.conf) == ("shop", {"spark.driver.memory": "700m"})
    monkeypatch.setenv("DB2CDC_MAINTENANCE_SCHEDULE", "none")
    [dag] = dags("db2cdc_maintenance.py").values()
    assert dag.schedule is None


def test_example_consumer_loads_without_spark(dags: Dags) -> None:
    [dag] = dags("db2cdc_consumer.py").values()
    assert (dag.dag_id, dag.task_ids) == ("sales_order_changes", ["count_changes"])
    assert dag.schedule.uri == "db2cdc://sales/SALES/ORDERS"
