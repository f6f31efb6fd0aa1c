"""One check of the preflight: what was looked at, whether it holds, and what to do where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from airflow_provider_db2cdc.errors import Db2CdcError

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: of which subject, whether it holds, else what is wrong and what to do.

    A failed check of level `warning` does not keep the pipeline from running.
    """

    name: str
    subject: str
    ok: bool
    problem: str = ""
    remedy: str = ""
    level: Level = "error"


def judged(name: str, subject: str, ok: bool, problem: str, remedy: str, level: Level = "error") -> Check:
    """Return the check of what was found; problem and remedy count where it does not hold."""
    return Check(name, subject, True, level=level) if ok else Check(name, subject, False, problem, remedy, level)


def tried(name: str, subject: str, action: Callable[[], object]) -> Check:
    """Return the check of an action, which holds where it raises no error of ours."""
    try:
        action()
    except Db2CdcError as error:
        return failed(name, subject, error)
    return Check(name, subject, True)


def failed(name: str, subject: str, error: Db2CdcError) -> Check:
    """Return the check that an error has failed."""
    return Check(name, subject, False, error.problem, error.remedy)


def result(name: str, subject: str, error: Db2CdcError | None) -> Check:
    """Return the check of something that was asked before."""
    return failed(name, subject, error) if error else Check(name, subject, True)
