"""Clean-up of what a test leaves in a sandbox that other tests share."""

from __future__ import annotations

from typing import Any

from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import load_journals


def end_capture(writer: Any, schema: str) -> None:
    """End the capture of a schema's tables. Each captured table would make all later tests a little slower."""
    writer.rollback()
    for journal in load_journals(writer):
        if journal.source[0] == schema:
            control_tables.removetable(writer, *journal.source)
