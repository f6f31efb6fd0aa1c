"""One check of the preflight: its subject, whether it passed, and what to do if it did not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from airflow_provider_db2cdc.errors import Db2CdcError

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Check:
    """One check of a subject. If it is not `ok`, `problem` says what is wrong and `remedy` what to do.

    The pipeline can run with a failed check of level `warning`.
    """

    name: str
    subject: str
    ok: bool
    problem: str = ""
    remedy: str = ""
    level: Level = "error"


def required(name: str, subject: str, ok: bool, problem: str, remedy: str) -> Check:
    """Return a check that passed if `ok`. Problem and remedy only count if it did not pass."""
    return Check(name, subject, True) if ok else Check(name, subject, False, problem, remedy)


def advised(name: str, subject: str, ok: bool, problem: str, remedy: str) -> Check:
    """Return a check like `required`, without which the pipeline can run."""
    return replace(required(name, subject, ok, problem, remedy), level="warning")


def tried(name: str, subject: str, action: Callable[[], object]) -> Check:
    """Return the check of an action. It passes unless the action raises a Db2CdcError."""
    try:
        action()
    except Db2CdcError as error:
        return failed(name, subject, error)
    return Check(name, subject, True)


def failed(name: str, subject: str, error: Db2CdcError) -> Check:
    """Return the failed check of an error."""
    return Check(name, subject, False, error.problem, error.remedy)


def result(name: str, subject: str, error: Db2CdcError | None) -> Check:
    """Return the check of an earlier result: failed with its error, passed without one."""
    return failed(name, subject, error) if error else Check(name, subject, True)
