"""The operator that sends a pipeline a signal: to snapshot, stop, pause or resume, or to change offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import XCOM_RETURN_KEY
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context

from airflow_provider_db2cdc.cdc.signal.request import parse
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.plan import CONF_KEY, signals_of

FORM: Mapping[str, set[str]] = {
    "execute-snapshot": {"known_tables", "tables", "type", "conditions", "surrogate_key"},
    "stop-snapshot": {"known_tables", "tables", "type"},
    "pause-snapshot": {"type"},
    "resume-snapshot": {"type"},
    "restart-table": {"known_tables", "tables", "all_failed"},
    "restore-offset": {"known_tables", "tables", "all_failed"},
}
"""The fields of the trigger form that each action uses."""
OWN_ID = (
    "{{ dag.dag_id }}/{{ run_id }}/{{ ti.task_id }}{{ '/%d' % ti.map_index if ti.map_index >= 0 }}"
    "{{ '~%d' % (ti.max_tries - task.retries) if ti.max_tries > task.retries }}"
)
"""The default id of a signal. A retry has the id of the first try, and a cleared task has another one.

When a task is cleared, Airflow adds the number of earlier tries to its `max_tries`.
"""

CONDITION = re.compile(r"""((?:"[^"]*"|[^":']|:(?!\s))+):\s+(.+)""", re.DOTALL)
"""A table and its condition. The first colon before a blank separates them.

A colon within quotes or in a pattern's `(?:` does not. A text with an SQL literal in '...' is not a table.
"""


class Db2CdcSignalOperator(TriggerDagRunOperator):
    """Trigger a run of a pipeline's DAG that carries a signal. The `output` is the signal's id.

    The run waits until the current one has ended. It acts on the signal, and does an ordinary tick too. An invalid
    signal is refused before anything is triggered. A retry sends the same id, so the pipeline acts on it only once. A
    cleared task sends a new signal.

    :param trigger_dag_id: The pipeline's DAG. (templated)
    :param signal_type: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, restart-table,
        restore-offset or log. (templated)
    :param data: The data of that type, as Debezium writes it (templated). Like any template field it can also be a
        function of `context` and `jinja_env`, such as `form_data`.
    :param signal_id: The signal's id. By default it is made from this run and task. (templated)
    :param kwargs: Arguments of `TriggerDagRunOperator`: `wait_for_completion`, `deferrable`, `poke_interval` ...
        A `conf` is sent along with the signal.
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

        :raises AirflowFailException: when the signal is invalid, or `conf` is not a JSON object.
        """
        with fail_at_once():
            signal = self.signal()
            parse(signal)
            sent = {"id": signal.id, "type": signal.type, "data": signal.data}
            self.conf = {**_given_conf(self.conf), CONF_KEY: [sent]}
        # The base class triggers a run by raising an exception, so a return value would be lost.
        context["ti"].xcom_push(key=XCOM_RETURN_KEY, value=signal.id)
        super().execute(context)

    def signal(self) -> Signal:
        """Return the signal to be sent."""
        [signal] = signals_of(
            {CONF_KEY: [{"id": self.signal_id, "type": self.signal_type, "data": self.data}]}, self.signal_id
        )
        return signal


def _given_conf(conf: Any) -> Mapping[str, Any]:
    """Return the conf that is sent along. Like the base class, this takes JSON text too."""
    try:
        given = json.loads(conf) if isinstance(conf, str) and conf.strip() else conf or {}
    except ValueError:
        given = None
    if not isinstance(given, Mapping):
        raise SignalError("the conf to be sent along is not a JSON object", 'Write {"name": "value"}, or omit it.')
    return given


def form_data(context: Context, jinja_env: Any = None) -> Mapping[str, Any]:
    """Return a signal's data from the params of the trigger form. Empty fields are omitted.

    :raises SignalError: when a field is unknown or the action does not use it, or a line is not a condition.
    """
    given = {name: value for name, value in context["params"].items() if name != "action" and _is_given(value)}
    action = str(context["params"].get("action"))
    fields = sorted(set[str]().union(*FORM.values()))
    if unknown := sorted(given.keys() - fields):
        raise SignalError(f"the form has no field {unknown[0]!r}", f"Its fields are action, {', '.join(fields)}.")
    if unused := sorted(given.keys() - FORM.get(action, set())):
        raise SignalError(f"{action} does not use the field {unused[0]}", "Leave it empty.")
    data = {
        "data-collections": _named([*given.get("known_tables", []), *given.get("tables", [])]),
        "type": given.get("type"),
        "additional-conditions": _conditions(given.get("conditions", [])),
        "surrogate-key": given.get("surrogate_key"),
        "all-failed": given.get("all_failed"),
    }
    return {name: value for name, value in data.items() if value}


def _is_given(value: Any) -> bool:
    """Whether a field was filled in.

    A list of blank lines counts as filled in. If it were empty, a stop would stop all tables.
    """
    return bool(value.strip() if isinstance(value, str) else value)


def _named(lines: Sequence[Any]) -> list[Any]:
    """Return the form's lines without blanks around them, and without blank lines.

    Enter after the last line leaves a blank line. If all lines are blank, they stay, and are refused later.
    """
    stripped = [line.strip() if isinstance(line, str) else line for line in lines]
    return [line for line in stripped if line != ""] or stripped


def _conditions(lines: Sequence[Any]) -> list[Mapping[str, str]]:
    """Return the form's conditions in the form that a signal has."""
    conditions = list[Mapping[str, str]]()
    for line in filter(None, _named(lines)):
        parts = CONDITION.fullmatch(line) if isinstance(line, str) else None
        if parts is None:
            raise SignalError(
                f"{line!r} is not a table and its condition",
                "Write one a line: a table, a colon, a blank and the condition, as in `SALES.ORDERS: STATUS = 1`.",
            )
        conditions.append({"data-collection": parts[1].strip(), "filter": parts[2]})
    return conditions
