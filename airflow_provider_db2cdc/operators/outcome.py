"""The last task of a tick: it fails if a table failed, although the other tables are committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Fail the run for failed tables, offsets that were not stored, and refused signals that it was triggered with.

    This is a separate task after the commit, because Airflow emits asset events only of tasks that succeed. DAGs that
    are scheduled on successful tables must not wait for a table that failed.

    :param result: The JobResult as JSON, from the apply task. (templated)
    :param unkept: What the commit task returned: which offsets could not be stored, or None. That of a backfill moves
        none. (templated)
    """

    template_fields: Sequence[str] = ("result", "unkept")
    ui_color = "#f7e8dc"

    def __init__(
        self, *, result: str | XComArg, unkept: str | XComArg | Mapping[str, Any] | None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.result = result
        self.unkept = unkept

    def execute(self, context: Context) -> None:
        """Report the failed tables, the offsets that were not stored, and the refused signals, all in one error.

        :raises AirflowFailException: when there is one of these. The next tick continues from where each stands.
        """
        with fail_at_once():
            result = JobResult.from_json(str(self.result))
        # The commit of a backfill stores no offset: it returns what was found.
        problems = [str(self.unkept)] if self.unkept and result.repair is None else []
        for check in (raise_for_failures, partial(raise_for_signals, channel=AIRFLOW_CHANNEL)):
            try:
                check(result)
            except (TickFailedError, SignalError) as error:
                problems.append(str(error))
        if problems:
            raise AirflowFailException("\n".join(problems))
        self.log.info("all went well: pipeline=%s tables=%d", result.pipeline, len(result.tables))
