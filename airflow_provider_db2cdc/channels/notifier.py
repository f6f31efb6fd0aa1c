"""Where notifications go beside the target's journal: the log, Airflow's asset events, and what users bring."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from airflow_provider_db2cdc.cdc.notification import Notification
from airflow_provider_db2cdc.config import PipelineConfig
from airflow_provider_db2cdc.import_path import load_class

log = logging.getLogger(__name__)

LOG, AIRFLOW, DELTA = "log", "airflow", "delta"


class Notifier(Protocol):
    """A place of one's own; made with the pipeline's configuration alone, as `module:Class` in the list names it."""

    def send(self, notifications: Sequence[Notification]) -> None:
        """Tell of a tick's notifications, in their order; a retried commit tells of them again."""


def notify(config: PipelineConfig, notifications: Sequence[Notification]) -> bool:
    """Send a tick's notifications to the channels that `notification.enabled.channels` names; False if one fails.

    The target's journal has them already; Airflow's events are the commit operator's. A channel that fails, or is not
    there on this machine, is named in the log, and keeps no other from being told: the tick is committed.
    """
    is_told = True
    for name in config.notification_channels:
        if name in (AIRFLOW, DELTA):
            continue
        if name == LOG:
            for one in notifications:
                details = " ".join(f"{key}={value}" for key, value in one.additional_data.items())
                log.info("notification: %s %s id=%s %s", one.aggregate_type, one.type, one.id, details)
        elif notifications:
            is_told = _send(name, config, notifications) and is_told
    return is_told


def check_notifiers(config: PipelineConfig) -> None:
    """Refuse notification channels that cannot be had, before a tick has anything to tell.

    :raises ConfigurationError: one of the channels is unknown.
    """
    for name in config.notification_channels:
        if name not in (LOG, AIRFLOW, DELTA):
            _open(name)


def _send(name: str, config: PipelineConfig, notifications: Sequence[Notification]) -> bool:
    try:
        _open(name)(config).send(notifications)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        log.exception("notifications: %s cannot be told (%s); the next tick tells all of them again", name, problem)
        return False
    return True


def _open(name: str) -> Callable[[PipelineConfig], Notifier]:
    return load_class(
        name,
        "notification.enabled.channels",
        "Known are log, airflow and delta; a custom one is named as module:Class.",
    )
