"""`db2cdc` for the demo's pipeline: a script that knows its Airflow home and its source."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import yaml

from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome
from airflow_provider_db2cdc.sandbox.server.service import Sandbox


def write_command(home: AirflowHome, sandbox: Sandbox) -> Path:
    """Write the script, to be called as `<folder>/db2cdc status` (doctor, offset show ...), and return its path.

    The script shows what Airflow keeps. It adds `--airflow` and the configuration, which has the database in addition
    to the DAG's settings.
    """
    config, script = home.folder / "command.yaml", home.folder / "db2cdc"
    properties = yaml.safe_load(home.config.read_text(encoding="utf-8"))
    whole = {**properties, "database": sandbox.state.settings}
    config.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    names = ("AIRFLOW_HOME", "AIRFLOW__CORE__LOAD_EXAMPLES", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "PYTHONPATH")
    known = home.environment()
    environment = " ".join(f"{name}={shlex.quote(known[name])}" for name in names)
    call = f"{shlex.quote(sys.executable)} -m airflow_provider_db2cdc.cli.main"
    script.write_text(f'#!/bin/sh\n{environment} exec {call} "$@" --config {shlex.quote(str(config))} --airflow\n')
    script.chmod(0o700)
    return script
