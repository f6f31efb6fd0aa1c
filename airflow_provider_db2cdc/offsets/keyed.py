"""The store of offsets on any store of texts: three documents per pipeline, each with one kind of writer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Literal, Protocol, TypeAlias

from airflow_provider_db2cdc.cdc.offset.request import Requests
from airflow_provider_db2cdc.cdc.offset.store import Committed
from airflow_provider_db2cdc.cdc.offset.stored import StoredOffsets
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.failpoint import failpoint

log = logging.getLogger(__name__)

Document: TypeAlias = Literal["requests", "offsets", "summary"]

READ_ORDER: tuple[Document, ...] = ("requests", "offsets", "summary")
"""The requests come first. A request that a commit consumes after that is then seen as consumed, and never as lost."""


class Texts(Protocol):
    """A store of texts: one of each kind of document."""

    @property
    def where(self) -> str:
        """The name of the store in messages."""

    def name(self, document: Document) -> str:
        """Return the name of a document in messages."""

    def get(self, document: Document) -> str | None:
        """Return a document's text, or None if it is missing.

        :raises OffsetError: when it cannot be read.
        """

    def put(self, document: Document, text: str) -> None:
        """Store a document's text, and check that it is read back.

        :raises OffsetError: when it cannot be stored, or another text is read back.
        """

    def locked(self) -> AbstractContextManager[None]:
        """Return a context in which no other process changes the texts, if the store has locks."""


class MemoryTexts:
    """A store of texts in memory."""

    def __init__(self, texts: Mapping[Document, str | None] | None = None, where: str = "memory") -> None:
        self.texts = dict(texts or {})
        self.where = where

    def name(self, document: Document) -> str:
        """Return the name of a document in messages."""
        return f"the {document} in {self.where}"

    def get(self, document: Document) -> str | None:
        """Return a document's text, or None if it is missing."""
        return self.texts.get(document)

    def put(self, document: Document, text: str) -> None:
        """Store a document's text."""
        self.texts[document] = text

    def locked(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()


class KeyedOffsetStore:
    """The offsets of one pipeline: an `OffsetStore` on texts."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    @property
    def where(self) -> str:
        """The name of the store in messages."""
        return self.texts.where

    def read_texts(self) -> dict[Document, str | None]:
        """Return the texts of all documents."""
        return {document: self.texts.get(document) for document in READ_ORDER}

    def read(self) -> PipelineOffsets:
        """Return all documents as they are now. See `OffsetReader`."""
        return read_documents(self.read_texts(), self.texts.name)

    def summary(self) -> PipelineSummary:
        """Return the summary with what plans have recorded since the last commit.

        :raises OffsetError: when it cannot be read.
        """
        texts: dict[Document, str | None] = {
            document: self.texts.get(document) for document in READ_ORDER if document != "offsets"
        }
        return read_documents(texts, self.texts.name).summary()

    def put_requests(self, change: Callable[[PipelineOffsets], Requests]) -> PipelineOffsets:
        """Keep what `change` makes of the documents. See `RequestStore`.

        A second try follows a failure, because another writer may have written at the same moment.
        """
        with self.texts.locked():
            try:
                return self._requested(change)
            except OffsetError as error:
                log.info("requests are written once more: %s", error)
                return self._requested(change)

    def _requested(self, change: Callable[[PipelineOffsets], Requests]) -> PipelineOffsets:
        seen = self.read()
        changed = replace(seen, requests=change(seen))
        pending = replace(changed, requests=changed.without_consumed())
        if pending.requests != seen.requests:
            self._put_requests(pending.requests.to_text())
        return pending

    def commit(self, change: Callable[[PipelineOffsets], Committed]) -> OffsetError | None:
        """Keep the offsets and the summary that `change` makes of the documents. See `CommitStore`."""
        with self.texts.locked():
            seen = self.read()
            committed = change(seen)
            if committed.summary != seen.stored_summary:
                self._put_summary(committed.summary.to_json())
            try:
                if committed.offsets != seen.stored:
                    self._put_offsets(committed.offsets.to_text())
            except OffsetError as error:
                return error
        return None

    @failpoint("put_requests")
    def _put_requests(self, text: str) -> None:
        self.texts.put("requests", text)

    @failpoint("put_summary")
    def _put_summary(self, text: str) -> None:
        self.texts.put("summary", text)

    @failpoint("put_offsets")
    def _put_offsets(self, text: str) -> None:
        self.texts.put("offsets", text)


def read_documents(texts: Mapping[Document, str | None], name: Callable[[Document], str]) -> PipelineOffsets:
    """Return the documents that these texts hold. A document that is not among them counts as missing.

    :raises OffsetError: when the document of requests cannot be read.
    """
    return PipelineOffsets(
        StoredOffsets.parse(texts.get("offsets"), name("offsets")),
        Requests.parse(texts.get("requests"), name("requests")),
        texts.get("summary"),
        name("summary"),
    )
