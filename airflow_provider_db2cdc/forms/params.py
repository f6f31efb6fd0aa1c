"""The fields of the form by which a person requests something of a pipeline."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_provider_db2cdc.cdc.signal.action import ACTIONS
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.offsets.variable import known_tables
from airflow_provider_db2cdc.operators.signal import FORM


def form_params(config: PipelineConfig) -> dict[str, Param]:
    """Return the fields of a pipeline's form: the action, tables, and what a snapshot takes.

    The form suggests the tables of the pipeline's last tick. `operators.signal.form_data` reads the fields.
    """
    return {**_action(), **_tables(config), **_snapshot()}


def _action() -> dict[str, Param]:
    return {
        "action": Param(
            "execute-snapshot",
            type="string",
            title="What to do",
            enum=[*FORM],
            values_display={action: ACTIONS[action] for action in FORM},
            description="A snapshot uses all fields but the failed tables. Stop uses tables and kind, pause and "
            "resume kind, restart and restore tables and the failed tables. Leave other fields empty.",
        ),
    }


def _tables(config: PipelineConfig) -> dict[str, Param]:
    known = known_tables(config.pipeline)
    carried = ", ".join(f"`{pattern}`" for pattern in config.selection.table_include) or "all captured tables"
    suggested: dict[str, Any] = {"examples": [*known], "values_display": known} if known else {}
    return {
        "known_tables": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            **suggested,
            title="Tables",
            description="Those that the pipeline's last tick carried. To stop without any table stops all.",
        ),
        "tables": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            title="Tables by name or pattern",
            description="One a line: SCHEMA.TABLE, a regular expression on it, or quoted names as in "
            f'`"my schema"."my.table"`. This pipeline carries {carried}.',
        ),
        "all_failed": Param(
            False,
            type=["null", "boolean"],
            title="All failed tables",
            description="Restart: also every table that failed in the last tick. Restore: also every table whose "
            "offset is missing, ahead or damaged.",
        ),
    }


def _snapshot() -> dict[str, Param]:
    return {
        "type": Param(
            None,
            type=["null", "string"],
            title="Kind of snapshot",
            enum=[None, "incremental", "blocking", "heal"],
            values_display={"None": "default"},
            description="Incremental: chunk by chunk, in as many ticks as it takes. Blocking: all at one moment. "
            "Heal: only rows that differ from the target are written. "
            "Default: incremental to execute, all to stop, pause or resume.",
        ),
        "conditions": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            title="Only some rows",
            description="One a line: a table, a colon, a blank and an SQL condition: `SALES.ORDERS: STATUS = 1`. "
            "A blocking snapshot also takes a whole select. Rows that were deleted are then not looked for.",
        ),
        "surrogate_key": Param(
            "",
            type=["null", "string"],
            title="Surrogate key",
            description="A column with unique values and no nulls to cut chunks by, instead of the table's key.",
        ),
    }
