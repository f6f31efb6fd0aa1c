"""Errors of a task that a retry cannot mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_db2cdc.errors import (
    ConcurrentRunError,
    ConfigurationError,
    GapError,
    OffsetError,
    RegistrationError,
    SignalError,
    TargetError,
    TickFailedError,
)

LASTING = (
    ConfigurationError,
    GapError,
    OffsetError,
    RegistrationError,
    SignalError,
    TargetError,
    TickFailedError,
    ConcurrentRunError,
)
"""Errors that an operator must mend, or that the next tick handles anyway.

A source that cannot be reached is not one of them.
"""

LASTING_NAMES = frozenset(kind.__name__ for kind in LASTING)


@contextmanager
def fail_at_once() -> Iterator[None]:
    """Turn an error that a retry cannot mend into one that Airflow does not retry.

    :raises AirflowFailException: when such an error is raised. It has the error's text.
    """
    try:
        yield
    except LASTING as error:
        raise AirflowFailException(str(error)) from error
