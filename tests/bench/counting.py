"""What a snapshot asks of the source: statements, and how long it waits for capture."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_provider_db2cdc.spark.groups import Groups
from airflow_provider_db2cdc.spark.jdbc import DriverConnection, JdbcSource
from airflow_provider_db2cdc.spark.reader import Group

TENTHS = 10


@dataclass
class Counts:
    """Statements of the driver and for frames, chunks, and seconds of waiting."""

    statements: int = 0
    reads: int = 0
    chunks: int = 0
    waited_s: list[float] = field(default_factory=list)
    published: list[tuple[float, int]] = field(default_factory=list)

    def told(self, seconds: float, changes: int) -> dict[str, Any]:
        """Return what the table shows; one read a chunk is the chunk's own."""
        return {
            "changes meanwhile": changes,
            "chunks": self.chunks,
            "statements a chunk": round((self.statements + self.reads - self.chunks) / max(1, self.chunks), 2),
            "waiting for capture": f"{100 * sum(self.waited_s) / seconds:.1f} %",
            "last tenth by second": self._last_by_second(),
        }

    def _last_by_second(self) -> float | None:
        """Return how fast the last tenth was published, the second being 1; None of fewer than ten groups.

        A last group of fewer chunks is left out: it costs as much as a whole one besides its rows.
        """
        if len(self.published) > 1 and self.published[-1][1] < self.published[-2][1]:
            self.published.pop()
        if len(self.published) < TENTHS:
            return None
        last, second = (self._at(one) - self._at(one - 0.1) for one in (1.0, 0.2))
        return round(second / last, 2)

    def _at(self, share: float) -> float:
        """Return when this share of the chunks was published, between groups by proportion."""
        total, done, before = sum(chunks for _, chunks in self.published), 0, self.published[0][0]
        for at, chunks in self.published:
            if done + chunks >= share * total:
                return before + (at - before) * (share * total - done) / chunks
            done, before = done + chunks, at
        return before


@contextmanager
def counted() -> Iterator[Counts]:
    """Count what the block does; polls for capture are left out."""
    counts = Counts()
    text_rows, bounds = DriverConnection.text_rows, DriverConnection.chunk_bounds
    frame, parts = JdbcSource.frame, JdbcSource.parts
    wait, publish = Groups._passed, Groups._publish
    own = threading.local()

    def asking(*arguments: Any, **named: Any) -> Any:
        counts.statements += not getattr(own, "waits", False)
        return text_rows(*arguments, **named)

    def reading(*arguments: Any, **named: Any) -> Any:
        # Spark asks for a frame's columns by a statement of its own.
        counts.reads += 2
        return frame(*arguments, **named)

    def reading_parts(*arguments: Any, **named: Any) -> Any:
        counts.reads += 1 + len(arguments[3])
        return parts(*arguments, **named)

    def waiting(*arguments: Any) -> Any:
        started, own.waits = time.monotonic(), True
        try:
            return wait(*arguments)
        finally:
            own.waits = False
            counts.waited_s.append(time.monotonic() - started)

    def cutting(*arguments: Any) -> Any:
        found = bounds(*arguments)
        counts.chunks += len(found) + 1
        return found

    def publishing(groups: Groups, group: Group) -> None:
        publish(groups, group)
        counts.published.append((time.monotonic(), sum(len(of.counts) for of in group.slices.values())))

    with pytest.MonkeyPatch.context() as patch:
        steps: list[tuple[Any, str, Callable[..., Any]]] = [
            (DriverConnection, "text_rows", asking), (JdbcSource, "frame", reading),
            (JdbcSource, "parts", reading_parts), (Groups, "_passed", waiting),
            (DriverConnection, "chunk_bounds", cutting), (Groups, "_publish", publishing),
        ]  # fmt: skip
        for owner, name, step in steps:
            patch.setattr(owner, name, step)
        yield counts
