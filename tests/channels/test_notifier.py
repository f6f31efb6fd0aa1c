from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest

from airflow_provider_db2cdc.cdc.notification import Notification
from airflow_provider_db2cdc.channels.notifier import check_notifiers, notify
from airflow_provider_db2cdc.config import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

STARTED = Notification("77", "Incremental Snapshot", "STARTED", {"connector_name": "db2"}, 5)


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


def test_each_channel_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notify(config("delta", "airflow", "log", PAGER), [STARTED])
    assert Pager.sent == [("p", STARTED)]
    assert "notification: Incremental Snapshot STARTED id=77 connector_name=db2" in caplog.text


class Unreachable(Pager):
    """A notifier that cannot tell anybody."""

    def send(self, notifications: Sequence[Notification]) -> None:
        raise OSError("no route to the pager")


def test_a_channel_that_fails_keeps_no_other_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    assert not notify(config(f"{__name__}:Unreachable", PAGER), [STARTED])
    assert Pager.sent == [("p", STARTED)]
    assert "no route to the pager" in caplog.text
    assert notify(config(PAGER), [STARTED])


def test_known_channels_and_a_class_may_be_named() -> None:
    check_notifiers(config("delta", "airflow", "log", PAGER))
    assert Pager.sent == []


@pytest.mark.parametrize("name", ["nonsense", "json:Nothing", ".relative:Class", "json:__name__", "Log"])
def test_unknown_channel_is_refused_by_its_name_before_there_is_anything_to_tell(name: str) -> None:
    problem = r"notification\.enabled\.channels: .*names no class.*Known are log, airflow and delta"
    with pytest.raises(ConfigurationError, match=problem) as caught:
        check_notifiers(config(name))
    assert repr(name) in str(caught.value)


def test_channel_that_is_not_there_keeps_no_other_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    """Its module may be on the worker that planned, and not on the one that commits."""
    assert not notify(config("no.such.module:Class", PAGER), [STARTED])
    assert Pager.sent == [("p", STARTED)]
    assert "no.such.module:Class cannot be told" in caplog.text
