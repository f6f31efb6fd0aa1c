from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from support.broker import Broker, end, running_broker
from support.memory_pipeline import filled

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.signal.request import parse
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.channels import kafka
from airflow_provider_db2cdc.channels.channel import acknowledge_channels, read_channels
from airflow_provider_db2cdc.channels.kafka import KafkaChannel
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, SignalError, SourceError

pytestmark = pytest.mark.slow

NUMBERS = count(1)


def configured(servers: str, **properties: object) -> PipelineConfig:
    base = {"pipeline": "shop", "target": "/t", "signal.enabled.channels": "kafka"}
    return PipelineConfig.from_properties({**base, "signal.kafka.bootstrap.servers": servers, **properties})


def value(id_: str | None, kind: str = "pause-snapshot", **more: object) -> str:
    return json.dumps({**({"id": id_} if id_ else {}), "type": kind, **more})


def done(*ids: str) -> list[SignalOutcome]:
    return [SignalOutcome(id_, "kafka", "done", "", Signal(id_, "pause-snapshot", "{}", "kafka").asked) for id_ in ids]


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"signals-{next(NUMBERS)}"
    broker.create_topic(name)
    return name


Opened = Callable[..., KafkaChannel]


@pytest.fixture
def opened(broker: Broker, topic: str) -> Iterator[Opened]:
    """Open channels to the topic; each is closed at the end."""
    channels: list[KafkaChannel] = []

    def make(**properties: object) -> KafkaChannel:
        channels.append(KafkaChannel(configured(broker.servers, **{"signal.kafka.topic": topic, **properties})))
        return channels[-1]

    yield make
    for channel in channels:
        channel.close()


def ids(channel: KafkaChannel) -> list[str]:
    return [signal.id for signal in channel.read()]


def test_messages_are_read_from_the_beginning_in_their_order(broker: Broker, topic: str, opened: Opened) -> None:
    before = int(time.time() * 1000)
    data = {"data-collections": ["S.T"]}
    broker.send(topic, ("shop", value("1", "execute-snapshot", data=data)), ("shop", value("2", data=json.dumps(data))))
    first, second = opened().read()
    assert first == Signal("1", "execute-snapshot", json.dumps(data), "kafka", first.at_ms)
    assert first.at_ms is not None
    assert before <= first.at_ms <= int(time.time() * 1000)
    assert (second.id, second.data) == ("2", json.dumps(data)), "data may be JSON, or a text that holds it"


class Moving:
    """A consumer whose group's coordinator has moved the first times that it is asked."""

    def __init__(self, consumer: Any, times: int) -> None:
        self.consumer = consumer
        self.times = dict.fromkeys(("committed", "commit"), times)

    def __getattr__(self, name: str) -> Any:
        if self.times.get(name):
            self.times[name] -= 1
            return self._refuse
        return getattr(self.consumer, name)

    @staticmethod
    def _refuse(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))


def moving(patch: pytest.MonkeyPatch, times: int) -> list[Moving]:
    """Have each new consumer be such a one, and return a list of these."""
    real, made = confluent_kafka.Consumer, list[Moving]()

    def make(settings: dict[str, Any]) -> Moving:
        made.append(Moving(real(settings), times))
        return made[-1]

    patch.setattr(confluent_kafka, "Consumer", make)
    return made


def test_a_coordinator_that_has_moved_is_asked_again(
    broker: Broker, topic: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(topic, ("shop", value("1")))
    moved = moving(monkeypatch, 2)
    channel = opened()
    assert ids(channel) == ["1"]
    channel.acknowledge(done("1"))
    assert [consumer.times for consumer in moved] == [{"committed": 0, "commit": 0}]
    assert broker.committed(topic) == 1


def test_a_coordinator_that_is_nowhere_is_an_error_in_bounded_time(
    topic: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving(monkeypatch, 60)
    channel = opened()
    monkeypatch.setattr(kafka, "TIMEOUT_S", 1.0)
    with pytest.raises(SourceError, match=f"topic {topic} .*[Nn]ot coordinator"):
        channel.read()


def test_topic_is_named_after_the_prefix(broker: Broker) -> None:
    broker.create_topic("prod-signal")
    broker.send("prod-signal", ("prod", value("1")))
    channel = KafkaChannel(configured(broker.servers, **{"topic.prefix": "prod"}))
    try:
        assert ids(channel) == ["1"]
    finally:
        channel.close()


def test_empty_topic_has_no_signals(opened: Opened) -> None:
    channel = opened()
    assert ids(channel) == []
    channel.acknowledge(done("1"))


def test_messages_with_another_key_are_skipped_and_logged_once(
    broker: Broker, topic: str, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(topic, ("other", value("1")), (None, value("2")), ("shop", value("3")), ("SHOP", value("4")))
    broker.send(topic, ("other", value("5")))
    channel = opened()
    assert ids(channel) == ["3"]
    channel.acknowledge(done("3"))
    [told] = caplog.messages
    assert told == (
        f"signals: give messages of topic {topic} the key 'shop' (topic.prefix); passed over are those of "
        "the keys 'SHOP' (1), 'other' (2), none (1)"
    )
    assert broker.committed(topic) == 5, "after what is nobody's concern here, too"


def test_of_many_other_keys_the_log_names_some(
    broker: Broker, topic: str, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(topic, *((f"{at:03}{'x' * 300}", value("1")) for at in range(50)))
    assert ids(opened()) == []
    [told] = caplog.messages
    assert told.count("(1)") == 10
    assert told.endswith("and 40 more")
    assert len(told) < 1500


def test_nothing_is_committed_before_it_is_acknowledged(broker: Broker, topic: str, opened: Opened) -> None:
    broker.send(topic, ("shop", value("1")))
    channel = opened(**{"signal.consumer.enable.auto.commit": "true", "signal.consumer.auto.commit.interval.ms": "10"})
    assert ids(channel) == ids(channel) == ["1"], "and reading does not consume"
    channel.close()
    assert broker.committed(topic) is None


def test_offset_moves_only_over_finished_messages_in_order(broker: Broker, topic: str, opened: Opened) -> None:
    broker.send(topic, *(("shop", value(id_)) for id_ in "1234"))
    channel = opened()
    channel.acknowledge(done("2"))
    assert broker.committed(topic) is None
    channel.acknowledge(done("1", "2", "4"))
    assert broker.committed(topic) == 2
    assert ids(channel) == ["3", "4"]
    channel.acknowledge(done("3", "4"))
    channel.acknowledge(done("3", "4"))
    assert broker.committed(topic) == 4


def test_the_offset_waits_for_the_answer_to_a_second_signal_of_an_id(
    broker: Broker, topic: str, opened: Opened
) -> None:
    broker.send(topic, ("shop", value("1")), ("shop", value("1", "resume-snapshot")))
    channel = opened()
    channel.acknowledge(done("1"))
    [other] = channel.read()
    assert other.type == "resume-snapshot"
    channel.acknowledge([SignalOutcome(other.id_again, "kafka", "refused", "used", other.asked)])
    assert broker.committed(topic) == 2


def test_second_channel_continues_after_the_committed_offset(broker: Broker, topic: str, opened: Opened) -> None:
    broker.send(topic, ("shop", value("1")), ("shop", value("2")))
    opened().acknowledge(done("1"))
    broker.send(topic, ("shop", value("3")))
    assert ids(opened()) == ["2", "3"]
    assert ids(opened(**{"signal.kafka.groupId": "another"})) == ["1", "2", "3"]


def test_pipelines_that_share_a_topic_do_not_consume_each_others_signals(
    broker: Broker, topic: str, opened: Opened
) -> None:
    broker.send(topic, ("other", value("1")), ("shop", value("2")))
    opened().acknowledge(done("2"))
    assert ids(opened(**{"topic.prefix": "other"})) == ["1"]


MALFORMED = ["{oops", "[1]", '"text"', "7", "", None, b"\xff\xfe", "{}", "[" * 100_000, '{"id": "x"}']


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: repr(text)[:20])
def test_malformed_message_is_refused_and_then_consumed(
    broker: Broker, topic: str, opened: Opened, text: str | bytes | None
) -> None:
    broker.send(topic, ("shop", text), ("shop", value("2")))
    channel = opened()
    bad, good = channel.read()
    assert bad.id == ("x" if text == MALFORMED[-1] else f"offset 0 of {bad.at_ms}")
    with pytest.raises(SignalError, match=r"JSON|has no type"):
        parse(bad)
    assert good.id == "2"
    channel.acknowledge([SignalOutcome(bad.id, "kafka", "refused", "it has no type", bad.asked)])
    assert ids(opened()) == ["2"]


def test_message_without_an_id_goes_by_its_offset_and_time(broker: Broker, topic: str, opened: Opened) -> None:
    broker.send(topic, ("shop", value("1")), ("shop", value(None)), ("shop", value(None)))
    one, *others = opened().read()
    assert one.id == "1"
    assert [signal.id for signal in others] == [f"offset {at} of {signal.at_ms}" for at, signal in enumerate(others, 1)]


def test_message_without_an_id_is_not_taken_for_one_of_an_older_topic(
    broker: Broker, topic: str, opened: Opened
) -> None:
    broker.send(topic, ("shop", value(None)))
    time.sleep(0.01)
    other = f"{topic}-anew"
    broker.create_topic(other)
    broker.send(other, ("shop", value(None)))
    assert ids(opened()) != ids(opened(**{"signal.kafka.topic": other}))


def test_reading_ends_where_the_topic_ends_with_marks_of_a_transaction(
    broker: Broker, topic: str, opened: Opened
) -> None:
    """Such marks have offsets, and no consumer is given them."""
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value("1"), "shop")
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, value("2"), "shop")
    assert producer.flush(20) == 0
    producer.abort_transaction(30)
    channel = opened()
    started = time.monotonic()
    assert ids(channel) == ["1"]
    assert time.monotonic() - started < 10
    channel.acknowledge(done("1"))
    assert ids(channel) == []


def test_offset_of_an_older_topic_of_the_name_hides_nothing(broker: Broker, topic: str, opened: Opened) -> None:
    broker.send(topic, ("shop", value("1")))
    broker.commit(topic, 50)
    channel = opened()
    assert ids(channel) == ["1"]
    channel.acknowledge(done("1"))
    assert broker.committed(topic) == 1


def test_messages_that_the_topic_no_longer_keeps_are_not_waited_for(broker: Broker, topic: str, opened: Opened) -> None:
    broker.send(topic, *(("shop", value(id_)) for id_ in "123"))
    broker.commit(topic, 0)
    at = TopicPartition(topic, 0, 2)
    broker.admin.delete_records([at], request_timeout=20)[at].result(20)
    assert ids(opened()) == ["3"]


def test_topic_of_several_partitions_is_refused(broker: Broker, opened: Opened) -> None:
    broker.create_topic("wide", partitions=2)
    with pytest.raises(ConfigurationError, match=r"topic wide of signals has 2 partitions\. Give it one"):
        opened(**{"signal.kafka.topic": "wide"}).read()


def test_missing_topic_is_named(opened: Opened) -> None:
    with pytest.raises(SourceError, match=r"topic nowhere at .*Unknown topic.*and the topic there"):
        opened(**{"signal.kafka.topic": "nowhere"}).read()


@pytest.fixture
def patient_for_2_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "TIMEOUT_S", 2.0)


def test_outcomes_of_signals_are_sent_to_a_topic(broker: Broker, topic: str, opened: Opened) -> None:
    outcomes = f"{topic}-outcomes"
    broker.create_topic(outcomes)
    broker.send(topic, ("shop", value("1")), ("shop", "{oops"))
    # What only a consumer knows is passed over by the producer.
    more = {"signal.kafka.outcomes.topic": outcomes, "signal.consumer.auto.offset.reset": "earliest"}
    channel = opened(**more)
    channel.check()
    _, bad = channel.read()
    refused = SignalOutcome(bad.id, "kafka", "refused", "it is not JSON", bad.asked)
    channel.acknowledge([*done("1"), refused])
    told = [(key, json.loads(text)) for key, text in broker.messages(outcomes)]
    assert told == [
        ("shop", {"id": "1", "status": "done", "reason": ""}),
        ("shop", {"id": bad.id, "status": "refused", "reason": "it is not JSON"}),
    ]
    assert broker.committed(topic) == 2


def test_without_a_topic_of_outcomes_nothing_is_sent(broker: Broker, topic: str, opened: Opened) -> None:
    broker.send(topic, ("shop", value("1")))
    channel = opened()
    channel.check()
    channel.acknowledge(done("1"))
    assert broker.messages(topic) == [("shop", value("1"))]


def test_signals_come_again_where_outcomes_cannot_be_sent(
    broker: Broker, topic: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(topic, ("shop", value("1")))
    broker.commit(topic, 0)  # A new broker takes seconds to make the topic of offsets.
    channel = opened(**{"signal.kafka.outcomes.topic": "untold"})
    with pytest.raises(SourceError, match=r"topic untold at .*Unknown topic"):
        channel.check()
    with monkeypatch.context() as patch:
        patch.setattr(kafka, "TIMEOUT_S", 2.0)
        with pytest.raises(SourceError, match="topic untold at "):
            channel.acknowledge(done("1"))
    assert broker.committed(topic) == 0
    assert ids(channel) == ["1"]


def test_a_long_outcome_is_cut(broker: Broker, topic: str, opened: Opened) -> None:
    outcomes, long = f"{topic}-outcomes", "\u00e4" * 2_000_000
    broker.create_topic(outcomes)
    opened(**{"signal.kafka.outcomes.topic": outcomes}).acknowledge(
        [SignalOutcome(long, "kafka", "refused", long), *done("1")]
    )
    first, second = (json.loads(text) for _, text in broker.messages(outcomes))
    assert first == {"id": long[: kafka.MOST_CHARS], "status": "refused", "reason": long[: kafka.MOST_CHARS]}
    assert second["id"] == "1"


def test_outcomes_are_sent_by_a_client_with_the_consumers_properties(
    broker: Broker, topic: str, opened: Opened
) -> None:
    outcomes = f"{topic}-outcomes"
    broker.create_topic(outcomes)
    short = opened(**{"signal.kafka.outcomes.topic": outcomes, "signal.consumer.message.max.bytes": "1000"})
    with pytest.raises(SourceError, match=rf"topic {outcomes} at .*too large"):
        short.acknowledge([SignalOutcome("1", "kafka", "refused", "x" * 2000)])


def test_topic_of_the_signals_is_none_of_outcomes() -> None:
    same = {"signal.kafka.topic": "one", "signal.kafka.outcomes.topic": "one"}
    with pytest.raises(ConfigurationError, match=r"outcomes\.topic is the topic of the signals, one\. Name"):
        KafkaChannel(configured("127.0.0.1:1", **same))


@pytest.mark.usefixtures("patient_for_2_s")
def test_broker_that_is_away_is_an_error_in_bounded_time() -> None:
    started = time.monotonic()
    channel = KafkaChannel(configured("127.0.0.1:1"))
    with pytest.raises(SourceError, match=r"topic shop-signal at 127\.0\.0\.1:1: .*Is the broker up"):
        channel.read()
    with pytest.raises(SourceError):
        channel.acknowledge(done("1"))
    channel.close()
    assert time.monotonic() - started < 20


@pytest.mark.long
def test_broker_that_goes_away_is_an_error_in_bounded_time(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(tmp_path) as mortal:
        mortal.create_topic("shop-signal")
        mortal.send("shop-signal", ("shop", value("1")))
        mortal.commit("shop-signal", 0)  # A new broker takes seconds to make the topic of offsets.
        with monkeypatch.context() as patch:
            patch.setattr(kafka, "TIMEOUT_S", 2.0)
            channel = KafkaChannel(configured(mortal.servers))
        messages = channel._messages()
        assert next(messages)[0] == 0
        end(mortal.process)
        # Impatient only now: a broker that lives may take its time.
        monkeypatch.setattr(kafka, "TIMEOUT_S", 2.0)
        started = time.monotonic()
        with pytest.raises(SourceError):
            channel.acknowledge(done("1"))
        with pytest.raises(SourceError), channel._naming("shop-signal"):
            channel._consumer.commit(offsets=[channel._at(1)], asynchronous=False)
        channel.close()
        assert time.monotonic() - started < 30


def test_channel_needs_brokers() -> None:
    with pytest.raises(ConfigurationError, match=r"no signal\.kafka\.bootstrap\.servers"):
        KafkaChannel(configured(""))


@pytest.mark.parametrize(("name", "said"), [("sasl.jaas.config", "Java JAAS"), ("nonsense", '"nonsense"')])
def test_property_that_the_client_does_not_know_is_named(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"signal\.consumer\.\*: .*{said}.*librdkafka's properties"):
        KafkaChannel(configured("127.0.0.1:1", **{f"signal.consumer.{name}": "x"}))


def test_snapshot_requested_in_kafka_is_taken_once(broker: Broker, topic: str) -> None:
    """The ticks are in memory. The messages, their offset and their time are the broker's."""
    table = TableId("S", "T")
    config, pipeline = configured(broker.servers, **{"signal.kafka.topic": topic}), filled(table, rows=2)
    data = {"data-collections": [str(table)]}

    def tick() -> list[tuple[str, str]]:
        spec = JobSpec.from_json(pipeline.plan(read_channels(config)).to_json())
        result = pipeline.run(spec)
        pipeline.commit(result)
        acknowledge_channels(config, result.signals)
        return [(outcome.id, outcome.status) for outcome in result.signals]

    broker.send(topic, ("shop", value("older", "execute-snapshot", data=data)))
    time.sleep(0.01)
    pipeline.plans = count(time.time_ns() // 1_000_000)
    assert tick() == [("older", "refused")], "it was given before the pipeline's first tick"
    time.sleep(0.01)
    broker.send(topic, ("other", value("0", "execute-snapshot", data=data)))
    broker.send(topic, ("shop", value("1", "execute-snapshot", data=data)), ("shop", "{oops"))
    [requested, (bad, status)] = tick()
    assert (requested, bad.startswith("offset "), status) == (("1", "done"), True, "refused")
    assert read_channels(config) == []
    assert tick() == []
    assert pipeline.reads(table) == {0: 2, 1: 2}
