"""The signal channels of a pipeline. The plan reads signals from them, and the commit reports outcomes to them."""

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
"""The most signals of one channel in a plan, whose JobSpec holds them all. The others wait for the next plan."""


class SignalChannel(Protocol):
    """A source of signals. A custom channel is a class whose only argument is the pipeline's configuration.

    If it raises an error in `read` or `acknowledge`, the log has the error, and the tick continues without it. Outcomes
    of signals come back to the channel by its `name`, which must not be one of the known names.
    """

    name: str

    def read(self) -> Sequence[Signal]:
        """Return the waiting signals in their order, each under this channel's name. Nothing is consumed."""

    def check(self) -> None:
        """Check for `db2cdc doctor` that outcomes can be reported here. Nothing is written.

        :raises Db2CdcError: when they cannot be reported.
        """

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        """Consume the signals that were acted on, and report their outcomes.

        `Signal.is_answered` says which signals these are. Another signal may have come with the same id meanwhile.
        The call may come twice with the same outcomes. It may also never come for a signal that was acted on. `read`
        then returns that signal again, and the pipeline recognises its id.
        """

    def close(self) -> None:
        """Close connections and files."""


@contextmanager
def open_channels(config: PipelineConfig, *names: str) -> Iterator[list[SignalChannel]]:
    """Open the channels of these names, or by default all in `signal.enabled.channels`.

    The signal table and Airflow are not among them.

    :raises ConfigurationError: when a channel is unknown, or lacks a setting.
    """
    channels: list[SignalChannel] = []
    with ExitStack() as stack:
        for name in names or config.signal_channels:
            if name not in ELSEWHERE:
                channels.append(_made(name, config))
                stack.callback(_close, channels[-1])
        yield channels


def read_channels(config: PipelineConfig, *names: str) -> list[Signal]:
    """Return the signals of the channels of these names, or by default of all channels.

    If a channel cannot be read, the log has the error, and the tick continues without it. Each channel gives at most
    its first MOST_SIGNALS signals.

    :raises ConfigurationError: when a channel is unknown, or lacks a setting.
    """
    signals: list[Signal] = []
    with open_channels(config, *names) as channels:
        for channel in channels:
            try:
                signals += [_as_signal(signal, channel.name) for signal in _first(channel)]
            except Exception as error:
                text, needs_stack = _text_of(error), _is_foreign(error)
                log.error("signals: channel %s cannot be read: %s", channel.name, text, exc_info=needs_stack)
    return signals


def check_channel(config: PipelineConfig, name: str) -> None:
    """Read a channel once, as a tick does, and call its own check. Nothing is consumed.

    :raises Db2CdcError: when the channel is unknown, lacks a setting, or cannot be read.
    """
    with open_channels(config, name) as [channel]:
        try:
            channel.read()
            channel.check()
        except Db2CdcError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"channel {name} cannot be read: {_text_of(error)}", "Correct the class."
            ) from error


def acknowledge_channels(config: PipelineConfig, outcomes: Collection[SignalOutcome]) -> None:
    """Report to each channel the outcomes of its signals.

    If that fails, the log has the error, and the next tick reads the channel's signals again. The failure of one
    channel does not stop the others, or the rest of the commit.
    """
    if all(outcome.channel in ELSEWHERE for outcome in outcomes):
        return
    for name in config.signal_channels:
        try:
            with open_channels(config, name) as channels:
                for channel in channels:
                    if channel_outcomes := [outcome for outcome in outcomes if outcome.channel == channel.name]:
                        channel.acknowledge(channel_outcomes)
        except Exception as error:
            text = "signals: outcomes cannot be reported to channel %s, so its signals come again: %s"
            log.error(text, name, _text_of(error), exc_info=_is_foreign(error))


def _first(channel: SignalChannel) -> Sequence[Signal]:
    signals = [*channel.read()]
    if len(signals) > MOST_SIGNALS:
        text = "signals: channel %s holds %d signals; this tick acts on the first %d, later ones on the others"
        log.warning(text, channel.name, len(signals), MOST_SIGNALS)
    return signals[:MOST_SIGNALS]


def _as_signal(signal: Signal, channel: str) -> Signal:
    """Return a Signal under the channel's name. A custom channel may give objects of another class."""
    return Signal(signal.id, signal.type, signal.data, channel, signal.at_ms, signal.problem)


def _close(channel: SignalChannel) -> None:
    try:
        channel.close()
    except Exception as error:
        text, needs_stack = _text_of(error), _is_foreign(error)
        log.warning("signals: channel %s cannot be closed: %s", channel.name, text, exc_info=needs_stack)


def _made(name: str, config: PipelineConfig) -> SignalChannel:
    make = _open(name)
    try:
        channel = make(config)
        if not isinstance(channel.name, str):
            raise TypeError("its name is not a text")
        return channel
    except Db2CdcError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"signal.enabled.channels: {name} cannot be made ({_text_of(error)})", "Correct the class, or its settings."
        ) from error


def _is_foreign(error: Exception) -> bool:
    """Whether the error comes from a user's class. The log then shows the stack."""
    return not isinstance(error, Db2CdcError)


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if _is_foreign(error) else str(error)


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
