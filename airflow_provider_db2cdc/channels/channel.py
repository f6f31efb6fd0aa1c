"""The channels of a pipeline: read by the plan, told by the commit what became of each signal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal, SignalOutcome
from airflow_provider_db2cdc.channels.file import FileChannel
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError
from airflow_provider_db2cdc.import_path import load_class

log = logging.getLogger(__name__)

AIRFLOW_CHANNEL = "airflow"
ELSEWHERE = (SOURCE_CHANNEL, AIRFLOW_CHANNEL)
MOST_SIGNALS = 1_000
"""So many of a channel's signals go with a plan, whose JobSpec holds them all; the others wait for the next one."""


class SignalChannel(Protocol):
    """One way for signals to come in; a custom one is made with the pipeline's configuration alone.

    What it raises while it reads or acknowledges is told of in the log, and the tick goes on without it. By `name`,
    which is none of the known ones, the outcomes find the way back.
    """

    name: str

    def read(self) -> Sequence[Signal]:
        """Return the signals that are there, in their order, each under this channel's name; nothing is consumed."""

    def check(self) -> None:
        """Make sure beforehand that it can be told of outcomes, for `db2cdc doctor`; nothing is written.

        :raises Db2CdcError: it cannot.
        """

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        """Consume the signals that were acted on, and tell where they came from what became of them.

        `Signal.is_answered` says which of them these are: meanwhile another one may have come under an id of theirs.
        It may be called twice with the same outcomes, and never for some that were acted on, which then come again and
        are recognised by their ids.
        """

    def close(self) -> None:
        """Let go of what is open."""


@contextmanager
def open_channels(config: PipelineConfig, *names: str) -> Iterator[list[SignalChannel]]:
    """Open the channels of these names, or all that `signal.enabled.channels` names; not the signal table, nor Airflow.

    :raises ConfigurationError: one of them is unknown, or lacks a setting.
    """
    channels: list[SignalChannel] = []
    with ExitStack() as stack:
        for name in names or config.signal_channels:
            if name not in ELSEWHERE:
                channels.append(_made(name, config))
                stack.callback(_close, channels[-1])
        yield channels


def read_channels(config: PipelineConfig, *names: str) -> list[Signal]:
    """Return what the channels of these names hold, or all of them.

    One that cannot be read is told of in the log, and the tick goes on without it. Of more than MOST_SIGNALS the first
    ones are returned.

    :raises ConfigurationError: a channel is unknown, or lacks a setting.
    """
    signals: list[Signal] = []
    with open_channels(config, *names) as channels:
        for channel in channels:
            try:
                signals += [_own(signal, channel.name) for signal in _first(channel)]
            except Exception as error:
                log.error("signals: channel %s cannot be read: %s", channel.name, _told(error), exc_info=_is_own(error))
    return signals


def check_channel(config: PipelineConfig, name: str) -> None:
    """Read a channel once, as a tick would, and have it check itself; nothing is consumed.

    :raises Db2CdcError: it is unknown, lacks a setting, or cannot be read.
    """
    with open_channels(config, name) as [channel]:
        try:
            channel.read()
            channel.check()
        except Db2CdcError:
            raise
        except Exception as error:
            raise ConfigurationError(f"channel {name} cannot be read: {_told(error)}", "Correct the class.") from error


def acknowledge_channels(config: PipelineConfig, outcomes: Collection[SignalOutcome]) -> None:
    """Tell each channel what became of its signals; one that cannot be told has them come again at the next tick.

    None of them keeps the others, or what else a tick has to tell, from being told.
    """
    if all(outcome.channel in ELSEWHERE for outcome in outcomes):
        return
    for name in config.signal_channels:
        try:
            with open_channels(config, name) as channels:
                for channel in channels:
                    if own := [outcome for outcome in outcomes if outcome.channel == channel.name]:
                        channel.acknowledge(own)
        except Exception as error:
            told = "signals: channel %s cannot be told of outcomes, what it holds comes again: %s"
            log.error(told, name, _told(error), exc_info=_is_own(error))


def _first(channel: SignalChannel) -> Sequence[Signal]:
    signals = [*channel.read()]
    if len(signals) > MOST_SIGNALS:
        told = "signals: channel %s holds %d signals; this tick acts on the first %d, later ones on the others"
        log.warning(told, channel.name, len(signals), MOST_SIGNALS)
    return signals[:MOST_SIGNALS]


def _own(signal: Signal, channel: str) -> Signal:
    """Return a signal under the channel's name, and as one of ours where a class brings its own kind."""
    return Signal(signal.id, signal.type, signal.data, channel, signal.at_ms, signal.problem)


def _close(channel: SignalChannel) -> None:
    try:
        channel.close()
    except Exception as error:
        log.warning("signals: channel %s cannot be closed: %s", channel.name, _told(error), exc_info=_is_own(error))


def _made(name: str, config: PipelineConfig) -> SignalChannel:
    make = _open(name)
    try:
        channel = make(config)
        if not isinstance(channel.name, str):
            raise TypeError("its name is no text")
        return channel
    except Db2CdcError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"signal.enabled.channels: {name} cannot be made ({_told(error)})", "Correct the class, or its settings."
        ) from error


def _is_own(error: Exception) -> bool:
    """Whether it is a user's class that failed, so that the log is to say where."""
    return not isinstance(error, Db2CdcError)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if _is_own(error) else str(error)


def _open(name: str) -> Callable[[PipelineConfig], SignalChannel]:
    if name == "file":
        return FileChannel
    if name == "kafka":
        from airflow_provider_db2cdc.channels.kafka import KafkaChannel

        return KafkaChannel
    return load_class(
        name,
        "signal.enabled.channels",
        "Known are source, airflow, file and kafka; a custom one is named as module:Class.",
    )
