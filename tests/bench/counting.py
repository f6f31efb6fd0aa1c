"""What a snapshot asks of the source: statements, and how long it waits for capture."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action

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
    counts, own = Counts(), threading.local()

    def ask(_: ReachedFailpoint) -> None:
        counts.statements += not getattr(own, "waits_since", None)

    def read(_: ReachedFailpoint) -> None:
        # Spark asks for a frame's columns by a statement of its own.
        counts.reads += 2

    def read_parts(reached: ReachedFailpoint) -> None:
        counts.reads += 1 + len(reached.arguments["predicates"])

    def wait(_: ReachedFailpoint) -> None:
        own.waits_since = time.monotonic()

    def go_on(_: ReachedFailpoint) -> None:
        counts.waited_s.append(time.monotonic() - own.waits_since)
        own.waits_since = None

    def cut(reached: ReachedFailpoint) -> None:
        counts.chunks += len(reached.result) + 1

    def publish(reached: ReachedFailpoint) -> None:
        slices = reached.arguments["group"].chunk_ranges
        counts.published.append((time.monotonic(), sum(len(of.counts) for of in slices.values())))

    with (
        failpoint_action("query_source", before=ask),
        failpoint_action("read_frame", before=read),
        failpoint_action("read_parts", before=read_parts),
        failpoint_action("await_capture", before=wait, after=go_on),
        failpoint_action("find_chunk_bounds", after=cut),
        failpoint_action("publish_group", after=publish),
    ):
        yield counts
