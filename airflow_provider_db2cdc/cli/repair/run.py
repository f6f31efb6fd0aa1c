"""`db2cdc backfill` and `db2cdc replay`: compare, repair what differs, and show it. No offset moves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pendulum

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cli.pipeline import login, open_kept, open_source
from airflow_provider_db2cdc.cli.repair.show import show, show_idle
from airflow_provider_db2cdc.cli.screen import note, tell_ignored
from airflow_provider_db2cdc.cli.tick import spark_output
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.offsets.commit import raise_for_failures
from airflow_provider_db2cdc.source.planning.plan import IdleTick
from airflow_provider_db2cdc.source.planning.repair import RepairRequest, plan_repair
from airflow_provider_db2cdc.source.source_clock import PROPERTY as TIME_ZONE
from airflow_provider_db2cdc.submit.runner import run_job


def backfill(config: Path, wanted: Mapping[str, Any], as_json: bool, progress: bool) -> None:
    """Compare an interval, and repair what differs. `wanted` has its `begin` and `end`, and what `replay` takes.

    :raises ConfigurationError: when a time or a table is wrong.
    :raises TickFailedError: when tables failed. The others are repaired and shown.
    """
    pipeline = _load(config)
    begin, end = (read_time(wanted[name], option, pipeline) for name, option in (("begin", "--from"), ("end", "--to")))
    _run(
        pipeline, replace(_request(wanted), interval=DataInterval.of(begin, end)), wanted["airflow"], as_json, progress
    )


def replay(config: Path, wanted: Mapping[str, Any], as_json: bool, progress: bool) -> None:
    """Compare whole change logs with their states, and correct these. `wanted` has `tables`, `dry_run` and `airflow`.

    :raises ConfigurationError: when a table is wrong.
    :raises TickFailedError: when tables failed. The others are repaired and shown.
    """
    _run(_load(config), _request(wanted), wanted["airflow"], as_json, progress)


def read_time(text: str, option: str, config: PipelineConfig) -> datetime:
    """Return the time that an option gives. Without a zone it is one of the source's time zone.

    :raises ConfigurationError: when it is not an ISO time, or has no zone and the configuration has none.
    """
    remedy = f"Give an ISO time with its zone, such as 2026-01-01T00:00:00Z. Without one, {TIME_ZONE} must be set."
    mistake = ConfigurationError(f"{option} is {text!r}", remedy)
    try:
        time_read = datetime.fromisoformat(text)
    except ValueError as error:
        raise mistake from error
    if time_read.tzinfo is not None:
        return time_read
    if not config.time_zone:
        raise mistake
    return pendulum.instance(time_read, tz=config.time_zone)


def _load(config: Path) -> PipelineConfig:
    pipeline = load_config(config)
    tell_ignored(pipeline.ignored)
    for warning in pipeline.warnings:
        note(f"warning: {warning}")
    return pipeline


def _request(wanted: Mapping[str, Any]) -> RepairRequest:
    now = datetime.now(UTC)
    run_id, at_ms = f"cli__{now.isoformat()}", int(now.timestamp() * 1000)
    return RepairRequest(run_id, at_ms, tables=wanted["tables"], is_dry_run=wanted["dry_run"])


def _run(config: PipelineConfig, request: RepairRequest, airflow: bool, as_json: bool, progress: bool) -> None:
    started, offsets = time.monotonic(), open_kept(config, airflow).read()
    with open_source(config) as source:
        planned = plan_repair(source, config, offsets, request)
    if isinstance(planned, IdleTick):
        show_idle(planned.reason, as_json)
        return
    result = _apply(config, planned, progress)
    show(result, request.is_dry_run, as_json, time.monotonic() - started)
    raise_for_failures(result)


def _apply(config: PipelineConfig, spec: JobSpec, progress: bool) -> JobResult:
    with spark_output(f"{len(spec.tables)} tables to compare", progress) as on_line:
        return run_job(spec, config.spark, login(config), on_line)
