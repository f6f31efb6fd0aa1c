"""Asking a pipeline for something: a snapshot, a stop, a pause."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import XCOM_RETURN_KEY
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context

from airflow_provider_db2cdc.cdc.request import parse
from airflow_provider_db2cdc.cdc.signal import Signal
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.plan import CONF_KEY, signals_of

FORM = {"action", "known_tables", "tables", "type", "conditions", "surrogate_key"}
OWN_ID = (
    "{{ dag.dag_id }}/{{ run_id }}/{{ ti.task_id }}{{ '/%d' % ti.map_index if ti.map_index >= 0 }}"
    "{{ '~%d' % (ti.max_tries - task.retries) if ti.max_tries > task.retries }}"
)
"""A retry has the id of the first try. Airflow adds the tries that were made to a cleared task's `max_tries`."""

CONDITION = re.compile(r"""((?:"[^"]*"|[^":']|:(?!\s))+):(?:\s+(.*))?""", re.DOTALL)
"""A table and its condition: the first colon before a blank parts them, but within quotes or a pattern's `(?:`.

Behind a text of SQL's nothing is a table; without a condition a table is kept from those of later lines.
"""


class Db2CdcSignalOperator(TriggerDagRunOperator):
    """Trigger a run of a pipeline's DAG that carries a signal; its `output` is the signal's id.

    The run waits its turn behind the one that is under way, acts on the signal, and does a plain tick besides. What is
    no signal is refused here, before anything is triggered. A retry asks under the same id, and so only once; to clear
    the task is to ask anew.

    :param trigger_dag_id: The pipeline's DAG. (templated)
    :param signal_type: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log. (templated)
    :param data: What that type takes, as Debezium writes it (templated); or, as any template field, a function of
        `context` and `jinja_env`, such as `form_data`.
    :param signal_id: Its id; by default made of this run and task. (templated)
    :param kwargs: Whatever `TriggerDagRunOperator` takes: `wait_for_completion`, `deferrable`, `poke_interval` ...
        A `conf` of one's own is sent along.
    """

    template_fields: Sequence[str] = (*TriggerDagRunOperator.template_fields, "signal_type", "data", "signal_id")
    ui_color = "#f3e8f7"

    def __init__(
        self,
        *,
        trigger_dag_id: str,
        signal_type: str,
        data: Mapping[str, Any] | str | Callable[..., Mapping[str, Any]] | None = None,
        signal_id: str = OWN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_dag_id=trigger_dag_id, **kwargs)
        self.signal_type = signal_type
        self.data = data
        self.signal_id = signal_id

    def execute(self, context: Context) -> None:
        """Trigger the run.

        :raises AirflowFailException: it is no signal, or `conf` is no JSON object.
        """
        with fail_at_once():
            signal = self.signal()
            parse(signal)
            sent = {"id": signal.id, "type": signal.type, "data": signal.data}
            self.conf = {**_own_conf(self.conf), CONF_KEY: [sent]}
        # It is by raising that the base class triggers a run: what execute() returned would be lost.
        context["ti"].xcom_push(key=XCOM_RETURN_KEY, value=signal.id)
        super().execute(context)

    def signal(self) -> Signal:
        """Return the signal that is sent."""
        [signal] = signals_of(
            {CONF_KEY: [{"id": self.signal_id, "type": self.signal_type, "data": self.data}]}, self.signal_id
        )
        return signal


def _own_conf(conf: Any) -> Mapping[str, Any]:
    """Return the conf that is sent along; the base class takes the text of one, too."""
    try:
        own = json.loads(conf) if isinstance(conf, str) and conf.strip() else conf or {}
    except ValueError:
        own = None
    if not isinstance(own, Mapping):
        raise SignalError("the conf to be sent along is no JSON object", 'Write {"name": "value"}, or leave it out.')
    return own


def form_data(context: Context, jinja_env: Any = None) -> Mapping[str, Any]:
    """Return a signal's data from the params of the trigger form: action, known_tables, tables, type, conditions ..."""
    params = context["params"]
    if unknown := sorted({*params} - FORM):
        raise SignalError(f"the form has no field {unknown[0]!r}", f"Its fields are {', '.join(sorted(FORM))}.")
    tables = _named([*(params.get("known_tables") or []), *(params.get("tables") or [])])
    match params.get("action"):
        case "execute-snapshot":
            return {
                "data-collections": tables,
                "type": params["type"],
                "additional-conditions": _conditions(params.get("conditions") or []),
                **({"surrogate-key": params["surrogate_key"]} if params.get("surrogate_key") else {}),
            }
        case "stop-snapshot":
            return {"data-collections": tables} if tables else {}
        case action if tables:
            raise SignalError(
                f"{action} concerns every snapshot that was asked for, and tables are named", "Leave the tables out."
            )
        case _:
            return {}


def _named(lines: Sequence[Any]) -> list[Any]:
    """Return the form's lines without blanks around them, and without blank ones; these alone are left to be refused.

    Whoever ends the last line by Enter has a blank one behind it.
    """
    stripped = [line.strip() if isinstance(line, str) else line for line in lines]
    return [line for line in stripped if line != ""] or stripped


def _conditions(lines: Sequence[Any]) -> list[Mapping[str, str]]:
    """Return the form's conditions as a signal has them."""
    found = list[Mapping[str, str]]()
    for line in filter(None, _named(lines)):
        parts = CONDITION.fullmatch(line) if isinstance(line, str) else None
        if parts is None:
            raise SignalError(
                f"{line!r} is no condition of a table",
                "Write one a line, with a colon and a blank behind the table: `SALES.ORDERS: STATUS = 1`.",
            )
        found.append({"data-collection": parts[1].strip(), "filter": parts[2] or ""})
    return found
