"""Which errors of a task a retry can help, and which it cannot."""

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
"""Errors that someone has to mend, or that the next tick meets anyway; a source out of reach is none of them."""

LASTING_NAMES = frozenset(kind.__name__ for kind in LASTING)


@contextmanager
def fail_at_once() -> Iterator[None]:
    """Turn an error that lasts into one that Airflow does not retry.

    :raises AirflowFailException: with the error's own text.
    """
    try:
        yield
    except LASTING as error:
        raise AirflowFailException(str(error)) from error
