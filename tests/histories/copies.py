"""Copies that a history makes: of the target, and of Airflow's database."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from support.memory_journal import JournalRows
from support.memory_target import MemoryTarget

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.offsets.keyed import Document
from histories.damage import Damage


@dataclass(frozen=True)
class TargetCopy:
    """A copy of the whole target, with what was damaged in it."""

    target: MemoryTarget
    journal: JournalRows
    damages: dict[TableId, Damage]
    repaired_interruptions: Counter[TableId]
    begun: dict[TableId, int]
    superseded: set[TableId]
    trimmed: dict[TableId, Lsn]


@dataclass(frozen=True)
class AirflowCopy:
    """A copy of Airflow's database: the texts of the offsets, and the asset events."""

    texts: dict[Document, str | None]
    events: dict[TableId, list[Announcement]]
    repaired_interruptions: Counter[TableId]
