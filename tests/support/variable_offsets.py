"""Offsets in Airflow's Variables, which a test also arranges."""

from __future__ import annotations

from airflow_provider_db2cdc.offsets.variable import TaskVariables, Variables, VariableTexts
from support.memory_offsets import ArrangedOffsets


class VariableOffsets(ArrangedOffsets):
    """A store in Variables."""

    def __init__(self, pipeline: str, variables: Variables | None = None) -> None:
        super().__init__(VariableTexts(pipeline, variables or TaskVariables()))
