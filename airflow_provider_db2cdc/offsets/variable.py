"""Offsets in Airflow Variables: one JSON document per table. Operators find them under Admin > Variables."""

from __future__ import annotations

import logging
import os
import re
from hashlib import sha256
from typing import Any, Protocol

from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable

from airflow_provider_db2cdc.cdc.offset.offset import Offset, check_forward
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError

log = logging.getLogger(__name__)

MAX_KEY = 250
"""The most characters of a Variable's key (ID_LEN of Airflow's metadata database)."""

FOLDED = re.compile(r"[^A-Z0-9_$]")
"""Characters that a key cannot rely on.

A case-insensitive collation, a URL path or an environment variable may not tell them apart.
"""

DIGEST_CHARS = 16

AIRFLOWS_OWN = ("ExecutionAPISecretsBackend", "MetastoreBackend")
"""The backends that read Airflow's own database."""


def variable_key(pipeline: str, table: TableId) -> str:
    """Return the key `db2cdc.<pipeline>.<schema>.<table>`. Two tables never share a key.

    If a name is very long, its key ends with a digest of the exact name. So does the key of a name with characters
    other than upper-case letters, digits, '_' and '$'. MySQL ignores case when it compares keys. AIRFLOW_VAR_* has
    capitals only. A URL does not preserve '#' and '%'.
    """
    plain = f"db2cdc.{pipeline}.{_readable(table.schema)}.{_readable(table.name)}"
    if len(plain) <= MAX_KEY and not FOLDED.search(table.schema + table.name):
        return plain
    digest = sha256(repr((pipeline, table.schema, table.name)).encode()).hexdigest()[:DIGEST_CHARS]
    return f"{plain[: MAX_KEY - DIGEST_CHARS - 1]}~{digest}"


def summary_key(pipeline: str) -> str:
    """Return the key `db2cdc.<pipeline>~summary`.

    A pipeline's name may have dots. With '~' the key still differs from the key of every table.
    """
    return f"db2cdc.{pipeline}~summary"


def where_kept(key: str) -> str:
    """Return the name of a Variable in messages."""
    return f"the Airflow Variable {key}"


def described(table: TableId) -> str:
    """Return the description of a table's Variable, which Airflow's UI shows."""
    return f"all changes of {table} up to this LSN are in the target"


def known_tables(pipeline: str) -> dict[str, str]:
    """Return the tables of the pipeline's last tick: their names in signals, and how to show them.

    A form suggests them. It is built while a DAG is parsed, so an error here must not fail the DAG. The result is then
    empty.
    """
    try:
        return {name_of(table): str(table) for table in VariableOffsetStore(pipeline).summary().tables}
    except Exception as error:
        log.info("no tables are suggested: %s", error)
        return {}


class Variables(Protocol):
    """Airflow's Variables: texts by key."""

    def get(self, key: str, default: Any) -> Any:
        """Return a Variable's text."""

    def set(self, key: str, value: Any, description: Any) -> None:
        """Store a text."""


class TaskVariables:
    """Airflow's Variables inside a task.

    For the SDK a Variable is also missing if Airflow's API could not be asked. Here that is an error.
    """

    def get(self, key: str, default: Any) -> Any:
        """Return a Variable's text.

        :raises AirflowException: when Airflow's API cannot be asked. A retry may succeed.
        """
        text = Variable.get(key, default=None)
        if text is None:
            text = _ask_api(key)
        return default if text is None else text

    def set(self, key: str, value: Any, description: Any) -> None:
        """Store a text."""
        Variable.set(key, value, description=description)


class VariableOffsetStore:
    """The offsets of one pipeline in Airflow Variables: an `OffsetStore` for tasks.

    A Variable has no compare-and-set, so only one DAG run may write at a time (max_active_tis_per_dag = 1).
    """

    where = "Airflow's Variables"

    def __init__(self, pipeline: str, variables: Variables | None = None) -> None:
        self.pipeline = pipeline
        self._variables = variables or TaskVariables()

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset, or None if its Variable does not exist.

        :raises OffsetError: when the Variable does not hold the table's offset.
        """
        key = variable_key(self.pipeline, table)
        text = self._variables.get(key, default=None)
        if text is None:
            return None
        offset = Offset.from_json(text, where_kept(key))
        if offset.table != table:
            raise OffsetError(
                f"{where_kept(key)} holds the offset of {offset.table}, not of {table}", "Put back its own."
            )
        return offset

    def put(self, offset: Offset) -> None:
        """Store `offset`. Storing the same one again changes nothing.

        :raises OffsetError: when it would replace a newer one, or another text is read back than was written.
        """
        check_forward(self.get(offset.table), offset)
        self._keep(variable_key(self.pipeline, offset.table), offset.to_json(), described(offset.table))

    def reset(self, offset: Offset) -> None:
        """Store `offset` even if it moves back. This is a repair that an operator asks for."""
        self._keep(variable_key(self.pipeline, offset.table), offset.to_json(), described(offset.table))

    def summary(self) -> PipelineSummary:
        """Return the summary, which is empty if its Variable does not exist.

        :raises OffsetError: when the Variable does not hold a summary.
        """
        text = self._variables.get(summary_key(self.pipeline), default=None)
        return (
            PipelineSummary()
            if text is None
            else PipelineSummary.from_json(text, where_kept(summary_key(self.pipeline)))
        )

    def put_summary(self, summary: PipelineSummary) -> None:
        """Store the summary.

        :raises OffsetError: when another text is read back than was written.
        """
        about = "its snapshots and signals, as its last tick left them"
        self._keep(summary_key(self.pipeline), summary.to_json(), about)

    def _keep(self, key: str, text: str, about: str) -> None:
        self._variables.set(key, text, description=f"Pipeline {self.pipeline}: {about}. Kept by its DAG.")
        read_back = self._variables.get(key, default=None)
        if read_back == text:
            return
        if shadow := _shadow(key):
            raise OffsetError(
                f"{where_kept(key)} was written, but {shadow} gives another value instead, so the pipeline would "
                "never move on",
                f"Remove it there: only Airflow's own database can keep it. Written was {text}.",
            )
        given = "none" if read_back is None else "another value"
        raise OffsetError(
            f"{where_kept(key)} was written, but Airflow gives {given} back, and no secrets backend has one",
            "See why in the log of Airflow's API server. If another run or a person wrote it at the same moment, let "
            f"that finish. Written was {text}.",
        )


def _ask_api(key: str) -> str | None:
    """Return a Variable's text from Airflow's API, or None if the API says that it does not exist."""
    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if comms is None:
        return None
    try:
        answer = comms.send(GetVariable(key=key))
    except AirflowRuntimeError as error:
        answer = error.error
    if not isinstance(answer, ErrorResponse):
        return None if answer is None else str(answer.value)
    if answer.error == ErrorType.VARIABLE_NOT_FOUND:
        return None
    raise AirflowException(
        f"Airflow's API could not be asked for the Variable {key} ({answer.error.value}), so the table's offset is not "
        "known. Run the task again."
    )


def _readable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_$]", "-", name)


def _shadow(key: str) -> str:
    """Return the name of what provides a Variable's value before Airflow's own database, or an empty text."""
    variable = f"AIRFLOW_VAR_{key.upper()}"
    if variable in os.environ:
        return f"the environment's {variable}"
    for backend in supervisor.ensure_secrets_backend_loaded():
        name = type(backend).__name__
        if name in AIRFLOWS_OWN:
            continue
        try:
            if backend.get_variable(key=key) is not None:
                return f"the secrets backend {name}"
        except Exception as error:
            log.info("a secrets backend could not be asked: backend=%s error=%s", name, type(error).__name__)
    return ""
