"""The last task of a tick: red when a table failed, though the others are committed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseOperator, Context, XComArg

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.channels.channel import AIRFLOW_CHANNEL
from airflow_provider_db2cdc.errors import SignalError, TickFailedError
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.tick import raise_for_failures, raise_for_signals


class Db2CdcOutcomeOperator(BaseOperator):
    """Fail the run when a table failed, or when a signal that it was triggered with was refused, with the reasons.

    A task of its own behind the commit, for Airflow emits asset events only of tasks that succeed: the DAGs behind
    the tables that went well are not to wait for one that did not.

    :param result: The JobResult as JSON, from the apply task. (templated)
    """

    template_fields: Sequence[str] = ("result",)
    ui_color = "#f7e8dc"

    def __init__(self, *, result: str | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.result = result

    def execute(self, context: Context) -> None:
        """Say which tables failed, and which signals were refused, all of them together.

        :raises AirflowFailException: there are some; the next tick takes them up where they stand.
        """
        with fail_at_once():
            result = JobResult.from_json(str(self.result))
        problems: list[str] = []
        for check in (raise_for_failures, partial(raise_for_signals, channel=AIRFLOW_CHANNEL)):
            try:
                check(result)
            except (TickFailedError, SignalError) as error:
                problems.append(str(error))
        if problems:
            raise AirflowFailException("\n".join(problems))
        self.log.info("all went well: pipeline=%s tables=%d", result.pipeline, len(result.tables))
