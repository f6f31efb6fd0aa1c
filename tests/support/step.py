"""The steps of a history: statements, commits and rollbacks of interleaved transactions."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.lsn import Lsn
from support.operation import Operation


@dataclass(frozen=True)
class Commit:
    """Commit. Capture gives the transaction this COMMITSEQ."""

    lsn: Lsn


@dataclass(frozen=True)
class Rollback:
    """Roll back. Nothing of the transaction is captured."""


@dataclass(frozen=True)
class Step:
    """The next action of the transaction with a number."""

    transaction: int
    action: Operation | Commit | Rollback
