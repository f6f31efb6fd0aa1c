"""The channels of notifications: the log, Airflow's asset events, and custom classes. The journal has all of them."""

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
"""Milliseconds after which notifications are no longer sent again. Until then each tick sends all that failed."""


class Notifier(Protocol):
    """A custom channel: a class that the list names as `module:Class`.

    Its only argument is the pipeline's configuration.
    """

    def send(self, notifications: Sequence[Notification]) -> None:
        """Send a tick's notifications in their order. A retry of the commit sends them again."""


def notify(
    config: PipelineConfig, notifications: Sequence[Notification], now_ms: int, drops_events: bool = False
) -> bool:
    """Send a tick's notifications to the channels in `notification.enabled.channels`.

    Return False if they are to be sent again. The target's journal has them already, and the commit operator emits
    Airflow's events. If a channel fails, or is missing on this machine, the log names it. The others still get the
    notifications, because the tick is committed. When the oldest notification is a day old, all are given up.
    `drops_events` says that Airflow will drop its events.
    """
    is_dropped = drops_events and AIRFLOW in config.notification_channels
    is_sent = all([*_sent(config, notifications)]) and not is_dropped
    oldest_ms = min((notification.timestamp for notification in notifications), default=now_ms)
    if not is_sent and now_ms - oldest_ms > GIVEN_UP_AFTER_MS:
        count = len(notifications)
        log.error("notifications: the oldest is a day old: all %d are given up, the target's journal has them", count)
        return True
    return is_sent


def _sent(config: PipelineConfig, notifications: Sequence[Notification]) -> Iterator[bool]:
    """Send to each channel, and yield for each custom one whether that succeeded."""
    for name in config.notification_channels:
        if name in (AIRFLOW, DELTA):
            continue
        if name == LOG:
            for notification in notifications:
                details = " ".join(f"{key}={value}" for key, value in notification.additional_data.items())
                names = (notification.aggregate_type, notification.type, notification.id)
                log.info("notification: %s %s id=%s %s", *names, details)
        elif notifications:
            yield _send(name, config, notifications)


def check_notifiers(config: PipelineConfig) -> None:
    """Check that all notification channels can be loaded, before a tick has anything to send.

    :raises ConfigurationError: when a channel is unknown.
    """
    for name in config.notification_channels:
        if name not in (LOG, AIRFLOW, DELTA):
            _open(name)


def _send(name: str, config: PipelineConfig, notifications: Sequence[Notification]) -> bool:
    try:
        _open(name)(config).send(notifications)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        log.exception("notifications: %s failed (%s); until it works, each tick sends all of them again", name, problem)
        return False
    return True


def _open(name: str) -> Callable[[PipelineConfig], Notifier]:
    return load_class(
        name,
        "notification.enabled.channels",
        "Known are log, airflow and delta; a custom one is named as module:Class.",
    )
