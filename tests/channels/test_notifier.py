from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.channels.notifier import check_notifiers, notify
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

NOW, DAY_MS = 1_800_000_000_000, 86_400_000
STARTED = Notification("77", "Incremental Snapshot", "STARTED", {"connector_name": "db2"}, NOW - DAY_MS)


class Pager:
    """An example of a notifier of one's own: `notification.enabled.channels: delta, my.module:Pager`."""

    sent: list[tuple[str, Notification]] = []

    def __init__(self, config: PipelineConfig) -> None:
        self.pipeline = config.pipeline

    def send(self, notifications: Sequence[Notification]) -> None:
        self.sent.extend((self.pipeline, one) for one in notifications)


PAGER = f"{__name__}:Pager"


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    Pager.sent.clear()


def config(*channels: str) -> PipelineConfig:
    return PipelineConfig.from_properties(
        {"pipeline": "p", "target": "/t", "notification.enabled.channels": list(channels)}
    )


def test_each_channel_gets_the_notifications(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notify(config("delta", "airflow", "log", PAGER), [STARTED], NOW)
    assert Pager.sent == [("p", STARTED)]
    assert "notification: Incremental Snapshot STARTED id=77 connector_name=db2" in caplog.text


class Unreachable(Pager):
    """A notifier that cannot send."""

    def send(self, notifications: Sequence[Notification]) -> None:
        raise OSError("no route to the pager")


def test_a_failed_channel_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    assert not notify(config(f"{__name__}:Unreachable", PAGER), [STARTED], NOW)
    assert Pager.sent == [("p", STARTED)]
    assert "no route to the pager" in caplog.text
    assert notify(config(PAGER), [STARTED], NOW)


def test_notifications_that_a_channel_refuses_for_a_day_are_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Else each tick would send, by every channel, all notifications since that one failed."""
    fresh = replace(STARTED, timestamp=NOW)
    assert notify(config(f"{__name__}:Unreachable", PAGER), [STARTED, fresh], NOW + 1)
    assert len(Pager.sent) == 2
    assert "all 2 are given up" in caplog.text
    caplog.clear()
    assert notify(config(PAGER), [STARTED, fresh], NOW + 1)
    assert "given up" not in caplog.text
    assert notify(config(f"{__name__}:Unreachable"), [], NOW)


def test_known_channels_and_a_class_may_be_named() -> None:
    check_notifiers(config("delta", "airflow", "log", PAGER))
    assert Pager.sent == []


@pytest.mark.parametrize("name", ["nonsense", "json:Nothing", ".relative:Class", "json:__name__", "Log"])
def test_an_unknown_channel_is_refused_before_the_first_notification(name: str) -> None:
    problem = r"notification\.enabled\.channels: .*names no class.*Known are log, airflow and delta"
    with pytest.raises(ConfigurationError, match=problem) as caught:
        check_notifiers(config(name))
    assert repr(name) in str(caught.value)


def test_a_missing_channel_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """Its module may be on the worker that planned, and not on the one that commits."""
    assert not notify(config("no.such.module:Class", PAGER), [STARTED], NOW)
    assert Pager.sent == [("p", STARTED)]
    assert "no.such.module:Class failed" in caplog.text
