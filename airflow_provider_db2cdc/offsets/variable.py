"""Offsets in Airflow Variables: three JSON documents per pipeline. They are found under Admin > Variables."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable

from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.offsets.keyed import Document, KeyedOffsetStore

log = logging.getLogger(__name__)

AIRFLOWS_OWN = ("ExecutionAPISecretsBackend", "MetastoreBackend")
"""The backends that read Airflow's own database."""


ABOUT: Mapping[Document, str] = {
    "offsets": "all changes of a table up to its LSN are in the target. Kept by its DAG's commit task.",
    "requests": "what is requested of its tables, and what plans found out. Kept by operators, plans and sensors.",
    "summary": "its snapshots and signals, as its last tick left them. Kept by its DAG's commit task.",
}
"""What Airflow's UI shows about a document."""


def variable_key(pipeline: str, document: Document) -> str:
    """Return the key of a document, such as `db2cdc.sales~offsets`."""
    return f"db2cdc.{pipeline}~{document}"


def where_kept(key: str) -> str:
    """Return the name of a Variable in messages."""
    return f"the Airflow Variable {key}"


def known_tables(pipeline: str) -> dict[str, str]:
    """Return the tables of the pipeline's last tick: their names in signals, and how to show them.

    A form suggests them. It is built while a DAG is parsed, so an error here must not fail the DAG. The result is then
    empty.
    """
    try:
        key = variable_key(pipeline, "summary")
        text = TaskVariables().get(key, default=None)
        tables = () if text is None else PipelineSummary.from_json(text, where_kept(key)).tables
        return {name_of(table): str(table) for table in tables}
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


class VariableOffsetStore(KeyedOffsetStore):
    """The offsets of one pipeline in Airflow Variables: an `OffsetStore` for tasks, or with other `variables`."""

    def __init__(self, pipeline: str, variables: Variables | None = None) -> None:
        super().__init__(VariableTexts(pipeline, variables or TaskVariables()))
        self.pipeline = pipeline


class VariableTexts:
    """Documents in Airflow Variables.

    A Variable has no compare-and-set, so each document has one kind of writer. Only one DAG run may commit at a time
    (max_active_tis_per_dag = 1).
    """

    where = "Airflow's Variables"

    def __init__(self, pipeline: str, variables: Variables) -> None:
        self.pipeline = pipeline
        self._variables = variables

    def name(self, document: Document) -> str:
        """Return the Variable of a document."""
        return where_kept(variable_key(self.pipeline, document))

    def get(self, document: Document) -> str | None:
        """Return a document's text, or None if its Variable does not exist."""
        text: str | None = self._variables.get(variable_key(self.pipeline, document), default=None)
        return text

    def locked(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def put(self, document: Document, text: str) -> None:
        """Store a document's text.

        :raises OffsetError: when another text is read back than was written.
        """
        key = variable_key(self.pipeline, document)
        self._variables.set(key, text, description=f"Pipeline {self.pipeline}: {ABOUT[document]}")
        if (read_back := self._variables.get(key, default=None)) != text:
            raise _swallowed(key, text, read_back)


def _swallowed(key: str, text: str, read_back: str | None) -> OffsetError:
    """Return the error of a Variable that was written, but that gives another text back."""
    if shadow := _shadow(key):
        return OffsetError(
            f"{where_kept(key)} was written, but {shadow} gives another value instead, so the pipeline would never "
            "move on",
            "Remove it there: only Airflow's own database can keep it.",
        )
    given = "none" if read_back is None else "another value"
    return OffsetError(
        f"{where_kept(key)} was written, but Airflow gives {given} back, and no secrets backend has one",
        "See why in the log of Airflow's API server. If another run or a person wrote it at the same moment, let that "
        "finish.",
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
        f"Airflow's API could not be asked for the Variable {key} ({answer.error.value}), so the offsets are not "
        "known. Run the task again."
    )


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
