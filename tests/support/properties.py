"""Configurations of a few properties, and the errors of refused ones."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

BASE = {"pipeline": "sales", "target": "/lake/sales"}


def config(**properties: object) -> PipelineConfig:
    """Return the configuration of a pipeline with these additional properties."""
    return PipelineConfig.from_properties({**BASE, **properties})


def refusal(**properties: object) -> str:
    """Return the error text for wrong properties."""
    with pytest.raises(ConfigurationError) as caught:
        config(**properties)
    return str(caught.value)
