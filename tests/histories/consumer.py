"""A consumer that follows a table's asset events, and keeps a copy of the table from its change log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from support.memory_rows import folded_by_copies, folded_by_key
from support.memory_source import MemorySource
from support.memory_target import Logged, MemoryTarget

from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.table import TableId
from histories.damage import Damage, part_of


@dataclass
class Consumer:
    """What a consumer has read of each table, and up to which batch.

    It is `unsure` of tables of which it may have missed an event, or counted one twice. The documentation has it read
    these tables again. Tables of `put_back` are those of an older copy of the target, until they are complete again.
    """

    events: dict[TableId, list[Logged]] = field(default_factory=lambda: defaultdict(list))
    upto: dict[TableId, int] = field(default_factory=lambda: defaultdict(int))
    unsure: set[TableId] = field(default_factory=set)
    put_back: set[TableId] = field(default_factory=set)

    def read(self, target: MemoryTarget, table: TableId, to_batch: int) -> None:
        """Read the batches after the last one that was read."""
        after = self.upto[table]
        self.events[table] += [logged for logged in target.log[table] if after < logged[0] <= to_batch]
        self.upto[table] = max(after, to_batch)

    def note_trim(self, table: TableId, horizon: LogHorizon) -> None:
        """Note that a change log was trimmed. The consumer may not have read all that was deleted."""
        if self.upto[table] + 1 < horizon.batch:
            self.unsure.add(table)

    def note_damage(self, table: TableId, batch: int) -> None:
        """Note that a batch lacks an event, or has one twice. The consumer may read it as it is now."""
        if self.upto[table] < batch:
            self.unsure.add(table)

    def note_beginning(self, table: TableId) -> None:
        """Note that a table has begun again. If it was put back, events between the copy and the beginning are lost."""
        if table in self.put_back:
            self.unsure.add(table)

    def check(self, source: MemorySource, damages: Mapping[TableId, Damage]) -> None:
        """Check that the consumer has what the source has, apart from what was damaged."""
        for table in damages.keys() - self.unsure:
            fold = folded_by_copies if table in source.keyless else folded_by_key
            consumed = source.widened(table, Counter(row for row, _ in fold(self.events[table]).values()))
            wrong = (consumed - source.images(table)) + (source.images(table) - consumed)
            assert {part_of(row) for row in wrong} <= damages[table].parts, f"a consumer of {table}: {wrong}"
