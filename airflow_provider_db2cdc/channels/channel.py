"""The channels of a pipeline: read by the plan, told by the commit what became of each signal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol

from airflow_provider_db2cdc.cdc.signal import SOURCE_CHANNEL, Signal, SignalOutcome
from airflow_provider_db2cdc.config import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, SourceError

log = logging.getLogger(__name__)

AIRFLOW_CHANNEL = "airflow"
ELSEWHERE = (SOURCE_CHANNEL, AIRFLOW_CHANNEL)


class SignalChannel(Protocol):
    """One way for signals to come in; a custom one is made with the pipeline's configuration alone."""

    name: str

    def read(self) -> Sequence[Signal]:
        """Return the signals that are there, in their order, each under this channel's name; nothing is consumed."""

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        """Consume the signals that were acted on, and tell where they came from what became of them.

        It may be called twice with the same outcomes, and never for some that were acted on, which then come again and
        are recognised by their ids.
        """

    def close(self) -> None:
        """Let go of what is open."""


@contextmanager
def open_channels(config: PipelineConfig) -> Iterator[list[SignalChannel]]:
    """Open the channels that `signal.enabled.channels` names, but for the signal table and Airflow.

    :raises ConfigurationError: one of them is unknown, or lacks a setting.
    """
    channels: list[SignalChannel] = []
    try:
        for name in config.signal_channels:
            if name not in ELSEWHERE:
                channels.append(_open(name)(config))
        yield channels
    finally:
        for channel in channels:
            channel.close()


def read_channels(config: PipelineConfig) -> list[Signal]:
    """Return what all channels hold; one out of reach is told of in the log, and the tick goes on without it."""
    signals: list[Signal] = []
    with open_channels(config) as channels:
        for channel in channels:
            try:
                signals += channel.read()
            except SourceError as error:
                log.error("signals: channel %s cannot be read: %s", channel.name, error)
    return signals


def acknowledge_channels(config: PipelineConfig, outcomes: Collection[SignalOutcome]) -> None:
    """Tell each channel what became of its signals."""
    if all(outcome.channel in ELSEWHERE for outcome in outcomes):
        return
    with open_channels(config) as channels:
        for channel in channels:
            own = [outcome for outcome in outcomes if outcome.channel == channel.name]
            if not own:
                continue
            try:
                channel.acknowledge(own)
            except SourceError as error:
                log.error(
                    "signals: channel %s cannot be told of outcomes, its signals come again: %s", channel.name, error
                )


def _open(name: str) -> Callable[[PipelineConfig], SignalChannel]:
    if name == "file":
        from airflow_provider_db2cdc.channels.file import FileChannel

        return FileChannel
    if name == "kafka":
        from airflow_provider_db2cdc.channels.kafka import KafkaChannel

        return KafkaChannel
    module, _, kind = name.partition(":")
    try:
        found: Callable[[PipelineConfig], SignalChannel] = getattr(import_module(module), kind)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"signal.enabled.channels: {name!r} is no channel ({error})",
            "Known are source, airflow, file and kafka; a custom one is named as module:Class.",
        ) from error
    return found
