import subprocess
import sys

import pytest

import airflow_provider_db2cdc
from airflow_provider_db2cdc.get_provider_info import get_provider_info

BLOCKED = ("airflow", "pyspark", "delta", "ibm_db", "ibm_db_dbi", "pydantic", "yaml", "typer", "rich", "pendulum")


def run_blocked(code: str, blocked: tuple[str, ...] = BLOCKED) -> tuple[int, str]:
    """Run code in a Python in which these packages cannot be imported."""
    prelude = f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
    done = subprocess.run([sys.executable, "-c", prelude + code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_blocking_an_import_does_block() -> None:
    code, err = run_blocked("import airflow")
    assert code != 0
    assert "airflow" in err


def test_provider_info_is_read_without_airflow_or_anything_heavy() -> None:
    code = "from airflow_provider_db2cdc.get_provider_info import get_provider_info as g; assert g()['package-name']"
    assert run_blocked(code) == (0, "")


def test_package_is_imported_without_airflow_as_inside_spark() -> None:
    assert run_blocked("import airflow_provider_db2cdc as p; assert p.__version__") == (0, "")


def test_modules_named_by_provider_info_exist() -> None:
    info = get_provider_info()
    entries = [entry for kind in ("operators", "sensors", "hooks", "triggers") for entry in info[kind]]
    modules = [name for entry in entries for name in entry["python-modules"]]
    assert len(modules) == 11
    for name in modules:
        __import__(name)


def test_exported_names_are_all_there() -> None:
    for name in airflow_provider_db2cdc.__all__:
        assert getattr(airflow_provider_db2cdc, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = airflow_provider_db2cdc.Nothing


def test_provider_info_satisfies_airflows_schema() -> None:
    import json
    from importlib.resources import files

    import jsonschema

    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(get_provider_info(), schema)
