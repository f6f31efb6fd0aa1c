"""`db2cdc verify`: compares the target with the source, and shows where they differ."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict, VerifyResult, VerifySpec
from airflow_provider_db2cdc.cdc.verify.outcome import check_outcome, describe_range
from airflow_provider_db2cdc.cli.pipeline import login, open_source
from airflow_provider_db2cdc.cli.screen import Text, new_table, note, print_json, screen, span, tell_ignored
from airflow_provider_db2cdc.cli.tick import spark_output
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.source.planning.verification import VerifyRequest, plan_verification
from airflow_provider_db2cdc.submit.runner import run_job

COLOURS = {"equal": "green", "different": "red", "unfinished": "yellow", "failed": "red", "excluded": "dim"}


def new_id() -> str:
    """Return an id for a verification that was given none."""
    return f"cli__{datetime.now(UTC).isoformat(timespec='seconds')}"


def run(config: Path, wanted: Mapping[str, Any], as_json: bool, progress: bool) -> None:
    """Verify the `wanted` tables and show the result. `wanted` has the fields of a VerifyRequest.

    :raises DifferenceError: when a table differs from its source.
    :raises Db2CdcError: when a table could not be verified, or not completely.
    """
    request = VerifyRequest(**{**wanted, "id": wanted["id"] or new_id()})
    pipeline = load_config(config)
    tell_ignored(pipeline.ignored)
    with open_source(pipeline) as source:
        spec = plan_verification(source, pipeline, request)
    result = _run(pipeline, spec, progress)
    show(result, as_json)
    check_outcome(result, f"Continue with `{_again(config, request)}`.")


def show(result: VerifyResult, as_json: bool) -> None:
    """Show a result as a table, or as JSON."""
    if as_json:
        print_json(to_data(result))
        return
    names = ("table", "", "rows at the source", "in the target", "missing", "surplus", "different", "not compared")
    shown = new_table(*names, "chunks", "took", title=f"{result.pipeline}: verification {result.verification}")
    for verdict in result.tables:
        shown.add_row(*_row(verdict))
    screen().print(shown)
    for verdict in result.tables:
        for place in verdict.ranges:
            counts = f"{place.missing} missing, {place.surplus} surplus, {place.different} different"
            note(f"{verdict.table} {describe_range(place)}: {counts}")
        if verdict.status == "excluded":
            note(f"{verdict.table} is not verified: {verdict.error}")


def _run(config: PipelineConfig, spec: VerifySpec, progress: bool) -> VerifyResult:
    with spark_output(f"{len(spec.tables)} tables to verify", progress) as on_line:
        return run_job(spec, config.spark, login(config), on_line)


def _again(config: Path, request: VerifyRequest) -> str:
    quick = ["--quick"] if request.quick else []
    return shlex.join(["db2cdc", "verify", "--config", str(config), "--id", request.id, *quick, *request.tables])


def _row(verdict: TableVerdict) -> list[str | Text]:
    counts = (verdict.missing, verdict.surplus, verdict.different, verdict.keys_changed)
    return [
        str(verdict.table),
        Text(verdict.status, COLOURS[verdict.status]),
        str(verdict.source_rows),
        str(verdict.state_rows),
        *(str(count) if count else "" for count in counts),
        f"{verdict.chunks_compared} of {verdict.chunks}",
        span(verdict.duration_s),
    ]
