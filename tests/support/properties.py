"""Configurations of a few properties, and what is said of those that are refused."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

BASE = {"pipeline": "sales", "target": "/lake/sales"}


def config(**properties: object) -> PipelineConfig:
    """Return the configuration of a pipeline that has these properties, too."""
    return PipelineConfig.from_properties({**BASE, **properties})


def refusal(**properties: object) -> str:
    """Return what is said of properties that cannot be meant."""
    with pytest.raises(ConfigurationError) as caught:
        config(**properties)
    return str(caught.value)
