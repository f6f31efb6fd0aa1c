"""Checks of single properties by the rules of cdc/. Pydantic reports their errors together with its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any

import pendulum
from pydantic import AfterValidator, BeforeValidator, ValidatorFunctionWrapHandler, WrapValidator

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.maintenance.retention import PROPERTY as RETENTION
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.selection.tables import SNAPSHOT_INCLUDE, Selection, check_patterns
from airflow_provider_db2cdc.cdc.spark_master import check_master
from airflow_provider_db2cdc.config.validation_message import PropertyError
from airflow_provider_db2cdc.errors import ConfigurationError


@contextmanager
def property_error() -> Iterator[None]:
    """Turn a ConfigurationError into one that pydantic collects.

    :raises PropertyError: when the body raises a ConfigurationError.
    """
    try:
        yield
    except ConfigurationError as error:
        raise PropertyError(error.problem, error.remedy) from error


def _target(value: str) -> str:
    with property_error():
        Layout(value)
    return value


def _master(value: str) -> str:
    with property_error():
        check_master(value, "spark.master")
    return value


def _signal_table(value: str) -> str:
    with property_error():
        if value:
            parse_table(value, "signal.data.collection")
    return value


def _time_zone(value: str) -> str:
    if value and value not in pendulum.timezones():
        similar = get_close_matches(value, pendulum.timezones(), 1)
        suggestion = f" Did you mean {similar[0]}?" if similar else ""
        raise PropertyError(f"{value!r} is not a time zone", f"Write an IANA name such as Europe/Berlin.{suggestion}")
    return value


def _snapshot_include(value: tuple[str, ...]) -> tuple[str, ...]:
    texts = []
    for pattern in value:
        try:
            check_patterns(SNAPSHOT_INCLUDE, (pattern,))
        except ConfigurationError as error:
            texts.append(str(error))
    if texts:
        raise PropertyError("\n".join(texts))
    return value


def _selection(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ConfigurationError as error:
        texts = [*_mistakes_of(value), str(error)] if isinstance(value, Mapping) else [str(error)]
        raise PropertyError("\n".join(dict.fromkeys(texts))) from error


def _mistakes_of(lists: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes of each entry and of each pair of lists.

    A Selection reports only its first mistake, so one is made for each entry and each pair.
    """
    arguments: list[dict[str, Any]] = [
        {name: (entry,) if isinstance(given, tuple) else entry}
        for name, given in lists.items()
        for entry in (given if isinstance(given, tuple) else [given])
        if isinstance(entry, str)
    ]
    pairs = [{name: lists[name] for name in lists if name.startswith(kind)} for kind in ("table", "column")]
    for argument in [*arguments, *pairs]:
        try:
            Selection(**argument)
        except ConfigurationError as error:
            yield str(error)


def _age(value: Any) -> timedelta:
    """Return the duration of an age such as `30d`."""
    match = AGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise PropertyError(f"{RETENTION}: the value is not an age", "Write a number and a unit: 30d, 12w or 48h.")
    try:
        age: timedelta = pendulum.duration(**{AGE_UNITS[match[2].lower()]: int(match[1])}).as_timedelta()
    except OverflowError:
        age = timedelta()
    if age < SHORTEST_AGE:
        # A tick that runs needs the batches that it has just written.
        raise PropertyError(f"{RETENTION}: the age is not between a day and some centuries", "Write for example 30d.")
    return age


AGE = re.compile(r"(\d{1,9})\s*([dhw])", re.IGNORECASE)
AGE_UNITS = {"d": "days", "h": "hours", "w": "weeks"}
SHORTEST_AGE = timedelta(days=1)

Age = Annotated[timedelta, BeforeValidator(_age)]
Master = Annotated[str, AfterValidator(_master)]
Target = Annotated[str, AfterValidator(_target)]
SignalTable = Annotated[str, AfterValidator(_signal_table)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
SnapshotInclude = Annotated[tuple[str, ...], AfterValidator(_snapshot_include)]
CheckedSelection = Annotated[Selection, WrapValidator(_selection)]
