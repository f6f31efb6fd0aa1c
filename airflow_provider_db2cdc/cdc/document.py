"""Documents: the versioned JSON that Airflow and Spark exchange about a job."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from typing import Protocol, Self, TypeVar

from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.errors import ConfigurationError

VERSION = 1
RESULT_MARK = "DB2CDC_RESULT "
PROGRESS_MARK = "DB2CDC "
USER_ENV = "DB2CDC_USER"
PASSWORD_ENV = "DB2CDC_PASSWORD"
ERROR_LOG_ENV = "DB2CDC_ERROR_LOG"
PARENT_PIPE = "parent.pipe"
SPEC_NAME = "spec-{}.json"
"""The file of a job's spec with this number. The first is 1. An empty file ends a job that waits for its next spec."""

COMPRESSED, PLAIN_CHARACTERS = "zlib:", 65_536
"""The prefix of a compressed document, and the greatest length of one that is kept as it is."""

LEASE_LOST = 75
"""The exit code of a job that lost the lease of its target. Its last output may be lost with it."""

R_co = TypeVar("R_co", covariant=True)


class JobResultDocument(Protocol):
    """The result of a job."""

    @property
    def is_failed(self) -> bool:
        """Whether the job ends with an error, although it has a result."""

    def to_json(self) -> str:
        """Return the result as one line of JSON."""


class JobDocument(Protocol[R_co]):
    """The spec of a job: what Spark is to do. It holds no secrets and no row values."""

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""

    @property
    def script(self) -> str:
        """The name of the entry script in spark_jobs/."""

    @property
    def is_short(self) -> bool:
        """Whether the job is too short for good compilation to pay."""

    def to_json(self) -> str:
        """Return the spec as one line of JSON."""

    def read_result(self, text: str) -> R_co:
        """Return the job's result from its JSON."""


class Document:
    """The base of a document: a frozen dataclass with a `version`, as one line of JSON."""

    def to_json(self) -> str:
        """Return the document as JSON. It holds no secrets and no row values."""
        return json.dumps(to_data(self))

    def to_xcom(self) -> str:
        """Return the document as a text for Airflow's database: as JSON, or if that is long, as compressed JSON."""
        text = self.to_json()
        return text if len(text) <= PLAIN_CHARACTERS else COMPRESSED + b64encode(zlib.compress(text.encode())).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a document from JSON, or from the text of `to_xcom`.

        :raises ConfigurationError: when it was written by another version of this provider, or is damaged.
        """
        try:
            data = json.loads(_expanded(text))
        except (ValueError, zlib.error) as error:
            raise ConfigurationError(f"the {cls.__name__} is not JSON: {error}") from error
        if not isinstance(data, dict) or data.get("version") != VERSION:
            version = data.get("version") if isinstance(data, dict) else None
            raise ConfigurationError(
                f"the {cls.__name__} has version {version}, expected {VERSION}",
                "Install the same version of airflow-provider-db2cdc where the DAG runs and where the job runs.",
            )
        return from_data(cls, data)


def _expanded(text: str) -> str:
    if not text.startswith(COMPRESSED):
        return text
    return zlib.decompress(b64decode(text.removeprefix(COMPRESSED), validate=True)).decode()
