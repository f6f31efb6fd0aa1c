"""What Airflow knows of this provider. It is read at every start of Airflow, so it imports nothing."""

from __future__ import annotations

from typing import Any

NAME = "Db2 CDC"
PACKAGE = "airflow_provider_db2cdc"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description as Airflow's provider_info schema wants it."""
    return {
        "package-name": "airflow-provider-db2cdc",
        "name": NAME,
        "description": "Batch change data capture from IBM Db2 into Delta Lake on Spark.",
        "integrations": [{"integration-name": NAME, "tags": ["software"]}],
        "operators": [
            _modules(
                *("operators.plan", "operators.apply", "operators.commit", "operators.outcome", "operators.signal"),
                "operators.verify",
                "operators.maintain",
            ),
        ],
        "sensors": [_modules("sensors.change", "sensors.snapshot")],
        "hooks": [_modules("hooks.db2cdc")],
        "triggers": [_modules("triggers.change")],
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": NAME, "python-modules": [f"{PACKAGE}.{name}" for name in names]}
