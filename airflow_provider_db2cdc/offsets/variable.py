"""Offsets in Airflow Variables: one JSON document a table, to be seen and mended under Admin > Variables."""

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
"""Characters of a Variable's key (ID_LEN of Airflow's metadata database)."""

FOLDED = re.compile(r"[^A-Z0-9_$]")
"""What a database with a case-blind collation, a URL path or an environment variable does not keep apart."""

DIGEST_CHARS = 16

AIRFLOWS_OWN = ("ExecutionAPISecretsBackend", "MetastoreBackend")
"""The backends that read what Airflow itself keeps."""


def variable_key(pipeline: str, table: TableId) -> str:
    """Return the key `db2cdc.<pipeline>.<schema>.<table>`; two tables never share one.

    Names of other than upper-case letters, digits, '_' and '$', and very long ones, end with a digest of the exact
    name: MySQL compares keys without regard to case, AIRFLOW_VAR_* knows capitals only, '#' and '%' do not survive a
    URL.
    """
    plain = f"db2cdc.{pipeline}.{_readable(table.schema)}.{_readable(table.name)}"
    if len(plain) <= MAX_KEY and not FOLDED.search(table.schema + table.name):
        return plain
    digest = sha256(repr((pipeline, table.schema, table.name)).encode()).hexdigest()[:DIGEST_CHARS]
    return f"{plain[: MAX_KEY - DIGEST_CHARS - 1]}~{digest}"


def summary_key(pipeline: str) -> str:
    """Return the key `db2cdc.<pipeline>~summary`; no table's key is like it, for a pipeline's name may have dots."""
    return f"db2cdc.{pipeline}~summary"


def where_kept(key: str) -> str:
    """Return how an error names the place."""
    return f"the Airflow Variable {key}"


def described(table: TableId) -> str:
    """Return what a table's Variable says of itself, to whoever looks at it."""
    return f"all changes of {table} up to this LSN are in the target"


def known_tables(pipeline: str) -> dict[str, str]:
    """Return how a signal names each table of the pipeline's last tick, and how to show it; none if none is known.

    For the suggestions of a form, while a DAG is parsed: nothing that goes wrong here may keep it from being.
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
        """Keep a text."""


class TaskVariables:
    """Variables as a task has them. The SDK tells none from one that it could not ask for: that is an error here."""

    def get(self, key: str, default: Any) -> Any:
        """Return a Variable's text.

        :raises AirflowException: Airflow's API cannot be asked; a retry may.
        """
        text = Variable.get(key, default=None)
        if text is None:
            text = _asked(key)
        return default if text is None else text

    def set(self, key: str, value: Any, description: Any) -> None:
        """Keep a text."""
        Variable.set(key, value, description=description)


class VariableOffsetStore:
    """The offsets of one pipeline; an `OffsetStore` for use inside tasks.

    A Variable has no compare-and-set: one DAG run at a time must write (max_active_tis_per_dag = 1).
    """

    def __init__(self, pipeline: str, variables: Variables | None = None) -> None:
        self.pipeline = pipeline
        self._variables = variables or TaskVariables()

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset, None when its Variable does not exist.

        :raises OffsetError: the Variable holds something else.
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
        """Keep `offset`; putting the same one again changes nothing.

        :raises OffsetError: an older one would replace a newer one, or something else than was written is read back.
        """
        check_forward(self.get(offset.table), offset)
        self._keep(variable_key(self.pipeline, offset.table), offset.to_json(), described(offset.table))

    def summary(self) -> PipelineSummary:
        """Return the summary, an empty one when its Variable does not exist.

        :raises OffsetError: the Variable holds something else.
        """
        text = self._variables.get(summary_key(self.pipeline), default=None)
        return (
            PipelineSummary()
            if text is None
            else PipelineSummary.from_json(text, where_kept(summary_key(self.pipeline)))
        )

    def put_summary(self, summary: PipelineSummary) -> None:
        """Keep the summary.

        :raises OffsetError: something else than was written is read back.
        """
        about = "its snapshots and signals, as its last tick left them"
        self._keep(summary_key(self.pipeline), summary.to_json(), about)

    def _keep(self, key: str, text: str, about: str) -> None:
        self._variables.set(key, text, description=f"Pipeline {self.pipeline}: {about}. Kept by its DAG.")
        found = self._variables.get(key, default=None)
        if found == text:
            return
        if shadow := _shadow(key):
            raise OffsetError(
                f"{where_kept(key)} was written, but {shadow} gives another value instead, so the pipeline would "
                "never move on",
                f"Remove it there: only Airflow's own database can keep it. Written was {text}.",
            )
        given = "none" if found is None else "another value"
        raise OffsetError(
            f"{where_kept(key)} was written, but Airflow gives {given} back, and no secrets backend has one",
            "See why in the log of Airflow's API server. If another run or a person wrote it at the same moment, let "
            f"that finish. Written was {text}.",
        )


def _asked(key: str) -> str | None:
    """Return a Variable as Airflow's API has it, None only where that says that there is none."""
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
        f"Airflow's API could not be asked for the Variable {key} ({answer.error.value}), so nobody knows where the "
        "table stands. Run the task again."
    )


def _readable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_$]", "-", name)


def _shadow(key: str) -> str:
    """Return what gives a Variable's value before Airflow's own database is asked, empty if nothing does."""
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
