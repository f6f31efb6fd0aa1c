from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.signal.request import parse
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.channels.channel import acknowledge_channels, check_channel, open_channels, read_channels
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, SignalError, SourceError


class QueueChannel:
    """An example of a channel of one's own: `signal.enabled.channels: my.module:QueueChannel`.

    It is made with the pipeline's configuration only. Whatever else it needs (an address, a password) it takes from the
    environment or from an Airflow connection. Each of its signals carries the channel's name, and so does its outcome.
    `read` must not consume. Between it and `acknowledge` lies a whole tick. If that tick crashes, the signals must come
    again.
    """

    name = "queue"
    waiting: dict[str, list[Signal]] = {}
    told: list[SignalOutcome] = []
    closed = 0

    def __init__(self, config: PipelineConfig) -> None:
        self._own = self.waiting.setdefault(config.pipeline, [])

    def read(self) -> Sequence[Signal]:
        return list(self._own)

    def check(self) -> None:
        """There is nothing that could be away."""

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        acted = {outcome.id for outcome in outcomes}
        self.told.extend(outcomes)
        self._own[:] = [signal for signal in self._own if signal.id not in acted]

    def close(self) -> None:
        QueueChannel.closed += 1


class BrokenChannel(QueueChannel):
    def __init__(self, config: PipelineConfig) -> None:
        raise ConfigurationError("there is no queue", "Make one.")


class AwayChannel(QueueChannel):
    name = "away"

    def read(self) -> Sequence[Signal]:
        raise SourceError("the queue is away", "Wait for it.")

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        raise SourceError("the queue is away", "Wait for it.")


class UntoldChannel(QueueChannel):
    def check(self) -> None:
        raise SourceError("the answers' queue is away", "Wait for it.")


class FailingChannel(QueueChannel):
    """A channel that raises errors of its own."""

    name = "failing"

    def read(self) -> Sequence[Signal]:
        raise KeyError("token")

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        raise KeyError("token")


class UnmadeChannel(QueueChannel):
    def __init__(self, config: PipelineConfig) -> None:
        raise KeyError("QUEUE_URL")


class NamelessChannel:
    def __init__(self, config: PipelineConfig) -> None:
        """Take nothing from it."""

    def close(self) -> None:
        """Nothing is open."""


class NumberedChannel(QueueChannel):
    name: Any = 7


class StuckChannel(QueueChannel):
    def close(self) -> None:
        raise SourceError("the queue cannot be closed")


AWAY, STUCK = f"{__name__}:AwayChannel", f"{__name__}:StuckChannel"
FAILING, UNMADE = f"{__name__}:FailingChannel", f"{__name__}:UnmadeChannel"
QUEUE, BROKEN = f"{__name__}:QueueChannel", f"{__name__}:BrokenChannel"


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    QueueChannel.waiting.clear()
    QueueChannel.told.clear()
    QueueChannel.closed = 0


def config(*channels: str, **more: object) -> PipelineConfig:
    return PipelineConfig.from_properties(
        {"pipeline": "p", "target": "/t", "signal.enabled.channels": list(channels), **more}
    )


def pause(id_: str, channel: str = "queue") -> Signal:
    return Signal(id_, "pause-snapshot", "", channel)


def test_a_users_channel_is_read_gets_outcomes_and_is_closed() -> None:
    QueueChannel.waiting["p"] = [pause("1"), pause("2")]
    assert read_channels(config("source", "airflow", QUEUE)) == [pause("1"), pause("2")]
    assert QueueChannel.closed == 1
    acknowledge_channels(config(QUEUE), [SignalOutcome("1", "queue", "done")])
    assert QueueChannel.told == [SignalOutcome("1", "queue", "done")]
    assert read_channels(config(QUEUE)) == [pause("2")]
    assert QueueChannel.closed == 3


def test_several_plans_take_the_signals_that_one_plan_cannot_hold(caplog: pytest.LogCaptureFixture) -> None:
    given = [pause(str(number)) for number in range(1500)]
    QueueChannel.waiting["p"] = list(given)
    first = read_channels(config(QUEUE))
    assert "channel queue holds 1500 signals; this tick acts on the first 1000" in caplog.text
    acknowledge_channels(config(QUEUE), [SignalOutcome(signal.id, "queue", "done") for signal in first])
    caplog.clear()
    assert [*first, *read_channels(config(QUEUE))] == given
    assert caplog.text == ""


def test_channels_are_read_in_the_order_they_are_named_in(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_text(json.dumps({"id": "f", "type": "pause-snapshot"}) + "\n")
    QueueChannel.waiting["p"] = [pause("q")]
    named = config("file", QUEUE, **{"signal.file": str(path)})
    assert [signal.id for signal in read_channels(named)] == ["f", "q"]
    assert [signal.id for signal in read_channels(named.model_copy(update={"signal_channels": (QUEUE, "file")}))] == [
        "q",
        "f",
    ]


def test_each_channel_gets_outcomes_of_its_own_signals_only(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_text(json.dumps({"id": "1", "type": "pause-snapshot"}) + "\n")
    QueueChannel.waiting["p"] = [pause("1")]
    named = config("file", QUEUE, **{"signal.file": str(path)})
    asked = read_channels(named)[0].asked
    acknowledge_channels(named, [SignalOutcome("1", "file", "done", "", asked), SignalOutcome("9", "airflow", "done")])
    assert read_channels(named) == [pause("1")]
    assert QueueChannel.told == []


def test_signal_table_and_airflow_are_read_elsewhere() -> None:
    with open_channels(config("source", "airflow")) as channels:
        assert channels == []


def test_nothing_is_opened_when_there_is_nothing_to_tell() -> None:
    acknowledge_channels(config(BROKEN), [SignalOutcome("1", "source", "done"), SignalOutcome("2", "airflow", "done")])
    acknowledge_channels(config(BROKEN), [])


def test_channels_before_a_broken_one_are_closed() -> None:
    with pytest.raises(ConfigurationError, match="there is no queue"):
        read_channels(config(QUEUE, BROKEN))
    assert QueueChannel.closed == 1


def test_channels_are_all_closed_when_one_cannot_be(caplog: pytest.LogCaptureFixture) -> None:
    QueueChannel.waiting["p"] = [pause("1")]
    assert read_channels(config(QUEUE, STUCK)) == [pause("1"), pause("1")], "what was read is not lost by it"
    assert QueueChannel.closed == 1
    assert "channel queue cannot be closed: the queue cannot be closed" in caplog.text


def test_channel_that_cannot_be_read_does_not_keep_the_others_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder in the file's place is an error of the configuration, and none for the tick to stop at."""
    QueueChannel.waiting["p"] = [pause("1")]
    assert read_channels(config("file", AWAY, QUEUE, **{"signal.file": str(tmp_path)})) == [pause("1")]
    assert f"channel file cannot be read: the signals in {tmp_path} cannot be read: Is a directory" in caplog.text
    assert "channel away cannot be read: the queue is away. Wait for it." in caplog.text


def test_a_channel_that_fails_does_not_keep_outcomes_from_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "signals"
    path.with_name("signals.outcomes").mkdir()
    outcomes = [SignalOutcome("1", channel, "done") for channel in ("file", "away", "queue")]
    acknowledge_channels(config("file", AWAY, QUEUE, **{"signal.file": str(path)}), outcomes)
    assert QueueChannel.told == [SignalOutcome("1", "queue", "done")]
    text = "outcomes cannot be reported to channel file, so its signals come again: the outcomes of signals"
    assert text in caplog.text
    assert f"outcomes cannot be reported to channel {AWAY}" in caplog.text


@pytest.mark.parametrize("other", [UNMADE, STUCK, f"{__name__}:NamelessChannel"], ids=["not made", "stuck", "nameless"])
def test_channel_that_fails_at_the_commit_costs_no_other_its_outcomes(other: str) -> None:
    acknowledge_channels(config(other, QUEUE), [told := SignalOutcome("1", "queue", "done")])
    assert told in QueueChannel.told


def test_signal_that_is_made_of_other_values_than_texts_ends_no_tick() -> None:
    loose: Any = Signal
    given = loose(7, "execute-snapshot", {"data-collections": ["S.T"]}, "queue", at_ms="now")
    QueueChannel.waiting["p"] = [given, loose("\ud800", "log", "", "queue"), loose(None, None, None, "queue")]
    signals = read_channels(config(QUEUE))
    json.dumps([vars(signal) for signal in signals], ensure_ascii=False).encode()
    assert signals[0] == Signal("7", "execute-snapshot", '{"data-collections": ["S.T"]}', "queue")
    assert [bool(signal.problem) for signal in signals] == [False, True, False]
    for bad in signals[1:]:
        with pytest.raises(SignalError):
            parse(bad)


def test_one_bad_signal_of_a_class_keeps_no_other_from_being_heard() -> None:
    loose: Any = Signal
    bad = loose("1", "log", {"at": datetime.now(UTC)}, "queue")
    QueueChannel.waiting["p"] = [bad, loose(8, None, None, "queue", True, 7), pause("2")]
    signals = read_channels(config(QUEUE))
    assert [signal.id for signal in signals] == ["1", "8", "2"]
    assert [signal.problem for signal in signals][1:] == ["7", ""]
    assert "not JSON serializable" in signals[0].problem
    for signal in signals:
        assert from_data(Signal, to_data(signal)) == signal


@pytest.mark.parametrize("data", ["", {"data-collections": ["S.T"]}, None], ids=["text", "object", "none"])
def test_a_signal_with_values_that_are_no_text_is_answered(data: Any) -> None:
    loose: Any = Signal
    given = loose(7, "execute-snapshot", data, "queue")
    QueueChannel.waiting["p"] = [given]
    [heard] = read_channels(config(QUEUE))
    assert given.is_answered([SignalOutcome(heard.id, "queue", "done", "", heard.asked)])


def test_class_that_fails_in_its_own_way_does_not_keep_the_others_from_it(caplog: pytest.LogCaptureFixture) -> None:
    QueueChannel.waiting["p"] = [pause("1")]
    assert read_channels(config(FAILING, QUEUE)) == [pause("1")]
    acknowledge_channels(config(FAILING, QUEUE), [SignalOutcome("1", name, "done") for name in ("failing", "queue")])
    assert QueueChannel.told == [SignalOutcome("1", "queue", "done")]
    told = [(record.getMessage(), bool(record.exc_info)) for record in caplog.records]
    assert told == [
        ("signals: channel failing cannot be read: KeyError: 'token'", True),
        (
            f"signals: outcomes cannot be reported to channel {FAILING}, so its signals come again: KeyError: 'token'",
            True,
        ),
    ]


def test_channel_whose_name_is_no_text_is_refused() -> None:
    """Outcomes are sent to the channel of their name. No channel would get these."""
    with pytest.raises(ConfigurationError, match=r"NumberedChannel cannot be made \(TypeError: its name is not a text"):
        read_channels(config(f"{__name__}:NumberedChannel"))


def test_class_that_cannot_be_made_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"UnmadeChannel cannot be made \(KeyError: 'QUEUE_URL'\)"):
        read_channels(config(UNMADE))


def test_channel_is_checked_by_reading_it_and_nothing_is_consumed() -> None:
    QueueChannel.waiting["p"] = [pause("1")]
    check_channel(config(), QUEUE)
    assert (QueueChannel.waiting["p"], QueueChannel.told, QueueChannel.closed) == ([pause("1")], [], 1)
    with pytest.raises(SourceError, match="the queue is away"):
        check_channel(config(), AWAY)
    with pytest.raises(SourceError, match="the answers' queue is away"):
        check_channel(config(), f"{__name__}:UntoldChannel")
    with pytest.raises(ConfigurationError, match="FailingChannel cannot be read: KeyError: 'token'"):
        check_channel(config(), FAILING)


def test_signals_go_by_their_channels_name_whatever_they_say() -> None:
    QueueChannel.waiting["p"] = [pause("1", "elsewhere")]
    assert read_channels(config(QUEUE)) == [pause("1")], "by it alone what becomes of them finds the way back"


def test_outcome_of_a_channel_that_is_no_longer_named_is_let_be() -> None:
    acknowledge_channels(config(QUEUE), [SignalOutcome("1", "kafka", "done")])
    assert QueueChannel.told == []


@pytest.mark.parametrize(
    "name", ["nonsense", "json", "json:", "json:Nothing", "no.such.module:Class", ":Class", ".relative:Class", "Kafka"]
)
def test_unknown_channel_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"signal\.enabled\.channels: .*names no class.*module:Class"
    ) as caught:
        read_channels(config(name))
    assert repr(name) in str(caught.value)
