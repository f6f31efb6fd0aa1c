"""`db2cdc doctor`: every check that a tick depends on, with all failures at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.offset.store import KnownOffsets
from airflow_provider_db2cdc.cdc.target_reach import check_reach
from airflow_provider_db2cdc.channels.channel import ELSEWHERE, check_channel
from airflow_provider_db2cdc.channels.notifier import check_notifiers
from airflow_provider_db2cdc.cli.pipeline import login, open_kept, open_source
from airflow_provider_db2cdc.cli.screen import Text, note, print_json, screen, tell_ignored
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import FILL_OR_REMOVE, PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError, OffsetError
from airflow_provider_db2cdc.offsets.file import FileOffsetStore
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.preflight.check import Check
from airflow_provider_db2cdc.source.preflight.checks import preflight
from airflow_provider_db2cdc.submit.home import spark_binary
from airflow_provider_db2cdc.submit.runner import check_connection, check_jars

MARKS = {
    "ok": Text("ok     ", "green"),
    "warning": Text("warning", "yellow"),
    "error": Text("FAILED ", "red"),
}

NEEDED_BY_SPARK = ("spark-submit", "java", "jars", "connection")
"""Checks that must pass before the JDBC connection is tried. Without them it could not start, or would fail too."""


def run(config: Path, as_json: bool, airflow: bool = False) -> int:
    """Run all checks, show those that fail with their remedies, and return 1 if one of them is an error."""
    pipeline = load_config(config)
    store = open_kept(pipeline, airflow)
    checks = _local(pipeline, store)
    with open_source(pipeline) as source:
        checks += preflight(source, pipeline, _read(store))
        if all(check.ok for check in checks if check.name in NEEDED_BY_SPARK):
            checks.append(_check("JDBC connection", str(source.address), partial(_connect, pipeline, source)))
    failed = [check for check in checks if not check.ok]
    warnings = sum(check.level == "warning" for check in failed)
    if as_json:
        print_json(to_data(checks))
    else:
        _show(checks)
        tell_ignored(pipeline.ignored, with_reasons=True)
        note(f"{len(checks)} checks, {len(failed) - warnings} failed, {warnings} warnings")
    return 1 if len(failed) > warnings else 0


def _local(config: PipelineConfig, store: KeyedOffsetStore) -> list[Check]:
    """Return the checks of this machine: what the command line needs in addition to the database."""
    spark = config.spark
    return [
        *(Check("properties", "configuration", False, text, FILL_OR_REMOVE, "warning") for text in config.warnings),
        _check("spark-submit", spark.binary or "pyspark", lambda: _executable(spark_binary(spark.binary))),
        _check("java", "java", lambda: _executable(_java())),
        _check("jars", str(spark.jars or "default"), partial(check_jars, spark)),
        _check("target", config.target, partial(_check_reach, config)),
        _check("offsets", store.where, partial(_check_kept, store)),
        _check("notifications", "notification.enabled.channels", lambda: check_notifiers(config)),
        *(
            _check("signals", f"channel {name}", partial(check_channel, config, name))
            for name in config.signal_channels
            if name not in ELSEWHERE
        ),
    ]


def _check_reach(config: PipelineConfig) -> None:
    """Check a target whose file system is known here. That of a path without a scheme may be set by Spark or Hadoop."""
    spark, default_fs = config.spark, config.spark.conf.get("spark.hadoop.fs.defaultFS", "")
    is_set_elsewhere = not default_fs and (spark.binary or os.environ.get("HADOOP_CONF_DIR"))
    if Layout(config.target).is_path and (":" in config.target or not is_set_elsewhere):
        check_reach(config.target, default_fs, spark.master, config.shared_mount)


def _connect(config: PipelineConfig, source: Source) -> None:
    check_connection(source.jdbc_url, config.spark, login(config))


def _check(name: str, subject: str, attempt: Callable[[], Any]) -> Check:
    try:
        attempt()
    except Db2CdcError as error:
        return Check(name, subject, ok=False, problem=error.problem, remedy=error.remedy)
    return Check(name, subject, ok=True)


def _check_kept(store: KeyedOffsetStore) -> None:
    if isinstance(store, FileOffsetStore):
        store.check_writable()
    store.read().all()


def _read(store: KeyedOffsetStore) -> KnownOffsets | None:
    """Return the offsets. If they cannot be read, another check says so."""
    try:
        return store.read()
    except OffsetError:
        return None


def _java() -> str:
    """Return the java that spark-submit takes: that of JAVA_HOME, or the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _executable(name: str) -> None:
    if shutil.which(name) is None:
        raise ConfigurationError(f"{name} is not found or cannot be run", "Install it, put it on PATH or correct it.")


def _show(checks: list[Check]) -> None:
    """Print one line per subject with the checks that passed, and each failed check with its remedy."""
    out = screen()
    for subject, subject_checks in groupby(checks, key=lambda check: check.subject):
        group = list(subject_checks)
        if passed := [check.name for check in group if check.ok]:
            out.print(MARKS["ok"], f"{subject}: {', '.join(passed)}", soft_wrap=True)
        for check in (check for check in group if not check.ok):
            out.print(MARKS[check.level], f"{subject}: {check.name}", soft_wrap=True)
            out.print(f"        {check.problem}", soft_wrap=True)
            out.print(f"        -> {check.remedy}", soft_wrap=True)
