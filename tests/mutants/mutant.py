"""A mutant: one mistake in one file, the promise that it breaks, and the tests that should notice it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = Path("airflow_provider_db2cdc")
LISTS = Path(__file__).parent

PROMISES = (
    "one driver writes a target on S3",
    "no secret on a command line, no Spark Connect",
    "ranges",
    "pairing",
    "net effects",
    "merge condition",
    "memory",
    "transaction ids",
    "order of writes",
    "orchestration",
    "further ticks of a run",
    "watermarks",
    "heals",
    "repairs",
    "commit times",
    "intervals",
    "window",
    "documents of offsets",
    "offset decisions",
    "asset events",
    "reach of the target",
    "gap rules",
    "signals",
    "quoting",
    "redaction",
    "maintenance",
    "verifications",
)
"""The promises of the README that the suite guards; each has at least three mutants."""


@dataclass(frozen=True)
class Mutant:
    """The text `old`, which stands once in `file`, becomes `new`; `tests` are pytest's arguments."""

    promise: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file, from the root of the repository."""
        return PACKAGE / self.file

    def mutated(self, text: str) -> str:
        """Return the file's text with the mistake.

        :raises ValueError: the old text does not stand there exactly once.
        """
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"{self.file}: {self.old!r} stands there {found} times")
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.promise}: {self.file}: {self.old.strip()} -> {self.new.strip()}"


def read_mutants() -> list[Mutant]:
    """Return the mutants of all lists, in their order. An entry with a field that it does not take is an error."""
    documents = [tomllib.loads(path.read_text("utf-8")) for path in sorted(LISTS.glob("*.toml"))]
    return [
        Mutant(promise=group["promise"], tests=tuple(group["tests"]), **entry)
        for document in documents
        for group in document["group"]
        for entry in group["mutant"]
    ]
