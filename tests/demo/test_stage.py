import io
import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.demo.board import Board
from airflow_provider_db2cdc.demo.cluster.demo import place_of
from airflow_provider_db2cdc.demo.services import postgres
from airflow_provider_db2cdc.demo.services.airflow_home import SHIPPED_DAGS, AirflowHome
from airflow_provider_db2cdc.demo.stage import MARKER, empty, enter_server
from airflow_provider_db2cdc.errors import ConfigurationError


def test_a_folder_of_another_program_stays(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="holds something else than a demo"):
        empty(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_an_earlier_demos_folder_is_emptied(tmp_path: Path) -> None:
    folder = empty(tmp_path / "demo")
    (folder / "lake").mkdir()
    assert [path.name for path in empty(folder).iterdir()] == [MARKER]


def test_the_shipped_dag_and_a_configuration_that_can_be_read_are_laid_out(tmp_path: Path) -> None:
    home = AirflowHome(tmp_path)
    home.lay_out()
    laid_out = {path.name: path.read_text() for path in (home.home / "dags").iterdir()}
    names = ("db2cdc_pipeline.py", "db2cdc_snapshot.py")
    assert laid_out == {name: (SHIPPED_DAGS / name).read_text() for name in names}, "all that can run here"
    config = load_config(home.config)
    assert (config.pipeline, config.target) == ("shop", str(tmp_path / "lake"))
    assert "spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension\n" in (tmp_path / "spark.conf").read_text()


def test_the_connection_names_the_cluster_and_the_lake_is_shared(tmp_path: Path) -> None:
    home = AirflowHome(tmp_path)
    home.spark = place_of("spark://127.0.0.1:7077", home)
    home.lay_out()
    config = load_config(home.config)
    assert config.shared_mount
    assert config.spark.conf["spark.driver.host"] == "127.0.0.1"
    connection = json.loads(home.environment()["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert connection["conn_type"] == "spark"
    assert (connection["host"], connection["port"]) == ("spark://127.0.0.1", 7077)
    assert connection["extra"] == {"deploy-mode": "client"}


def test_the_airflow_settings_of_whoever_runs_it_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_HOME", "elsewhere")
    monkeypatch.setenv("DB2CDC_DAG_ID", "other")
    monkeypatch.setenv("LANG", "C.UTF-8")
    env = AirflowHome(tmp_path).environment()
    assert not {"AIRFLOW__CORE__EXECUTOR", "DB2CDC_DAG_ID"} & env.keys()
    assert (env["AIRFLOW_HOME"], env["LANG"]) == (str(tmp_path / "airflow"), "C.UTF-8")


def test_without_postgresql_airflow_stays_on_sqlite_and_the_board_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "DEBIAN", tmp_path)
    screen, home = io.StringIO(), AirflowHome(tmp_path)
    with ExitStack() as stack:
        enter_server(stack, home, Board(Console(file=screen, width=200)))
    assert home.on_sqlite
    assert home.environment()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].startswith(f"sqlite:///{tmp_path}")
    assert re.search(r"PostgreSQL is not installed\. Install ", screen.getvalue()), screen.getvalue()
