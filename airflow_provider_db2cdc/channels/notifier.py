"""Where notifications go beside the target's journal: the log, Airflow's asset events, and what users bring."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.import_path import load_class

log = logging.getLogger(__name__)

LOG, AIRFLOW, DELTA = "log", "airflow", "delta"

GIVEN_UP_AFTER_MS = 86_400_000
"""So long a channel that fails is told again, all there is: each tick has more to tell."""


class Notifier(Protocol):
    """A place of one's own; made with the pipeline's configuration alone, as `module:Class` in the list names it."""

    def send(self, notifications: Sequence[Notification]) -> None:
        """Tell of a tick's notifications, in their order; a retried commit tells of them again."""


def notify(
    config: PipelineConfig, notifications: Sequence[Notification], now_ms: int, drops_events: bool = False
) -> bool:
    """Send a tick's notifications to the channels that `notification.enabled.channels` names; False to tell them again.

    The target's journal has them already; Airflow's events are the commit operator's. A channel that fails, or is not
    there on this machine, is named in the log, and keeps no other from being told: the tick is committed. Once the
    oldest of them is a day old, all of them are given up. `drops_events` says that Airflow will drop its events.
    """
    is_dropped = drops_events and AIRFLOW in config.notification_channels
    is_told = all([*_sent(config, notifications)]) and not is_dropped
    oldest_ms = min((one.timestamp for one in notifications), default=now_ms)
    if not is_told and now_ms - oldest_ms > GIVEN_UP_AFTER_MS:
        count = len(notifications)
        log.error("notifications: the oldest is a day old: all %d are given up, the target's journal has them", count)
        return True
    return is_told


def _sent(config: PipelineConfig, notifications: Sequence[Notification]) -> Iterator[bool]:
    """Send to each channel, and say of each of one's own whether that went well."""
    for name in config.notification_channels:
        if name in (AIRFLOW, DELTA):
            continue
        if name == LOG:
            for one in notifications:
                details = " ".join(f"{key}={value}" for key, value in one.additional_data.items())
                log.info("notification: %s %s id=%s %s", one.aggregate_type, one.type, one.id, details)
        elif notifications:
            yield _send(name, config, notifications)


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
        log.exception(
            "notifications: %s cannot be told (%s); until it can, each tick tells all of them again", name, problem
        )
        return False
    return True


def _open(name: str) -> Callable[[PipelineConfig], Notifier]:
    return load_class(
        name,
        "notification.enabled.channels",
        "Known are log, airflow and delta; a custom one is named as module:Class.",
    )
