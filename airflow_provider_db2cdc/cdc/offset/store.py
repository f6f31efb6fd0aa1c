"""The ports of the store that keeps a pipeline's offsets between ticks.

It keeps three documents, and each has one kind of writer. A store has no compare-and-set, so that matters:

- The offsets and the summary are written by commits, of which one runs at a time.
- The requests are written by operators, plans and sensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import Requests
from airflow_provider_db2cdc.cdc.offset.stored import StoredOffsets
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError


class KnownOffsets(Protocol):
    """The offsets of a pipeline as they were read."""

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset with what is requested of it, or None if there is neither.

        :raises OffsetError: when it cannot be read.
        """

    def summary(self) -> PipelineSummary:
        """Return the summary with what plans have recorded since the last commit.

        :raises OffsetError: when it cannot be read.
        """


class OffsetReader(Protocol):
    """Reads offsets."""

    @property
    def where(self) -> str:
        """The name of the store in messages."""

    def read(self) -> PipelineOffsets:
        """Return all documents as they are now.

        :raises OffsetError: when the document of requests cannot be read.
        """

    def summary(self) -> PipelineSummary:
        """Return only the summary, with what plans have recorded since the last commit.

        :raises OffsetError: when it cannot be read.
        """


class RequestStore(OffsetReader, Protocol):
    """Keeps requests: the part of the store for operators, plans and sensors."""

    def put_requests(self, change: Callable[[PipelineOffsets], Requests]) -> PipelineOffsets:
        """Keep what `change` makes of the documents, without requests that commits have consumed.

        It returns the documents after that. Nothing is written if nothing has changed.

        :raises OffsetError: when the requests cannot be read or kept, or another text is read back than was written.
        """


@dataclass(frozen=True)
class Committed:
    """What a commit leaves."""

    offsets: StoredOffsets
    summary: PipelineSummary


class CommitStore(OffsetReader, Protocol):
    """Keeps offsets and the summary: the part of the store for commits.

    It may lag behind Delta after a crash. The next tick moves it forward.
    """

    def commit(self, change: Callable[[PipelineOffsets], Committed]) -> OffsetError | None:
        """Keep what `change` makes of the documents: first the summary, then the offsets.

        A document that has not changed is not written. Return the error if the offsets could not be kept, or if another
        text was read back than was written. The summary is kept then.

        :raises OffsetError: when the documents cannot be read, or the summary cannot be kept.
        """


class OffsetStore(RequestStore, CommitStore, Protocol):
    """The whole store, for a run that both plans and commits."""
