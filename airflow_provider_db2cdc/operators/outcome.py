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
from airflow_provider_db2cdc.offsets.commit import raise_for_failures, raise_for_signals
from airflow_provider_db2cdc.operators.failure import fail_at_once


class Db2CdcOutcomeOperator(BaseOperator):
    """Fail the run for failed tables, offsets that were not kept, and refused signals that it was triggered with.

    A task of its own behind the commit, for Airflow emits asset events only of tasks that succeed: the DAGs behind
    the tables that went well are not to wait for one that did not.

    :param result: The JobResult as JSON, from the apply task. (templated)
    :param unkept: What the commit task returned: which offsets could not be kept, None where all were. (templated)
    """

    template_fields: Sequence[str] = ("result", "unkept")
    ui_color = "#f7e8dc"

    def __init__(self, *, result: str | XComArg, unkept: str | XComArg | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.result = result
        self.unkept = unkept

    def execute(self, context: Context) -> None:
        """Say which tables failed, which offsets were not kept and which signals were refused, all of them together.

        :raises AirflowFailException: there are some; the next tick takes them up where they stand.
        """
        with fail_at_once():
            result = JobResult.from_json(str(self.result))
        problems = [str(self.unkept)] if self.unkept else []
        for check in (raise_for_failures, partial(raise_for_signals, channel=AIRFLOW_CHANNEL)):
            try:
                check(result)
            except (TickFailedError, SignalError) as error:
                problems.append(str(error))
        if problems:
            raise AirflowFailException("\n".join(problems))
        self.log.info("all went well: pipeline=%s tables=%d", result.pipeline, len(result.tables))
