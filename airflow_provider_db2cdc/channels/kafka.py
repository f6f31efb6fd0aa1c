"""Signals in a Kafka topic, as Debezium reads them: the key is topic.prefix, the value a JSON object."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, signal_of
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, SourceError

log = logging.getLogger(__name__)

NAME = "kafka"
POLL_S = 0.2
TIMEOUT_S = 20.0
"""How long the broker may leave one question unanswered."""

MOST_KEYS, KEY_CHARS = 10, 100
"""Of the keys that are passed over: so many are told, and so much of each."""
MOST_CHARS = 10_000
"""So much of an id and of a reason is told: a message that is too long for the broker would hold up all behind it."""


class KafkaChannel:
    """`signal.kafka.topic` (by default `<topic.prefix>-signal`, one partition), read from the group's offset on.

    The offset is committed behind a message only once it, and all before it, were acted on. Messages under another key
    are passed over, and the log names these keys. What became of signals is told in `signal.kafka.outcomes.topic`, if
    there is one.
    """

    name = NAME

    def __init__(self, config: PipelineConfig) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise ConfigurationError(
                "signal.enabled.channels names kafka, and confluent-kafka is not installed",
                "Install airflow-provider-db2cdc[kafka].",
            ) from error
        if not config.kafka_bootstrap_servers:
            raise ConfigurationError(
                "signal.enabled.channels names kafka, but there is no signal.kafka.bootstrap.servers", "Name them."
            )
        self._kafka = confluent_kafka
        self._servers = config.kafka_bootstrap_servers
        self._key = config.server_name
        self._topic = config.kafka_topic or f"{config.server_name}-signal"
        self._outcomes = config.kafka_outcomes_topic
        if self._outcomes == self._topic:
            raise ConfigurationError(
                f"signal.kafka.outcomes.topic is the topic of the signals, {self._topic}", "Name another one."
            )
        self._given = config.kafka_consumer
        self._others = Counter[str]()
        try:
            self._consumer = confluent_kafka.Consumer(self._settings(config))
        except confluent_kafka.KafkaException as error:
            raise ConfigurationError(
                f"signal.consumer.*: {error.args[0].str().rstrip('.')}", "They are librdkafka's properties, not Java's."
            ) from None

    def read(self) -> Sequence[Signal]:
        """Return the messages behind the group's offset, from the topic's beginning where it has none.

        :raises ConfigurationError: the topic has several partitions, which have no order among them.
        :raises SourceError: the broker cannot be reached, or refuses.
        """
        self._others.clear()
        signals = [signal for _, signal in self._messages() if signal is not None]
        self._tell_others()
        return signals

    def check(self) -> None:
        """Make sure that there is a topic for outcomes; nothing is written.

        :raises SourceError: their topic is not there, or the broker cannot be reached.
        """
        if self._outcomes:
            self._described(self._outcomes)

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        """Tell the outcomes, and move the group's offset behind the messages that were acted on.

        Done again it tells them again. What comes of a snapshot later, when its signal is consumed, is not kept for a
        broker that is away.

        :raises SourceError: they cannot be told: then the offset stays. Or it cannot be moved.
        """
        self._tell(outcomes)
        behind = None
        for offset, signal in self._messages():
            if signal is not None and not signal.is_answered(outcomes):
                break
            behind = offset + 1
        if behind is not None:
            with self._asking(self._topic):
                self._of_group(lambda: self._consumer.commit(offsets=[self._at(behind)], asynchronous=False))

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _settings(self, config: PipelineConfig) -> dict[str, Any]:
        """Return the consumer's settings; the last two are what acknowledging, and an end of reading, hang on."""
        return {
            "bootstrap.servers": self._servers,
            "group.id": config.kafka_group_id or f"{config.server_name}-signal",
            "socket.timeout.ms": int(TIMEOUT_S * 1000),
            # It bounds how long a commit waits for the group's coordinator; there is no session without subscribing.
            "session.timeout.ms": int(TIMEOUT_S * 1000),
            **config.kafka_consumer,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }

    def _tell(self, outcomes: Collection[SignalOutcome]) -> None:
        if not self._outcomes:
            return
        errors: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        with self._asking(self._outcomes):
            producer = self._kafka.Producer({"bootstrap.servers": self._servers, **self._given})
            for outcome in outcomes:
                cut = replace(outcome, id=outcome.id[:MOST_CHARS], reason=outcome.reason[:MOST_CHARS])
                producer.produce(self._outcomes, cut.as_json, self._key, on_delivery=delivered)
                producer.poll(0)
            if producer.flush(TIMEOUT_S):
                errors.append(self._kafka.KafkaError(self._kafka.KafkaError._TIMED_OUT))
            if errors:
                raise self._kafka.KafkaException(errors[0])

    def _at(self, offset: int) -> Any:
        return self._kafka.TopicPartition(self._topic, 0, offset)

    def _messages(self) -> Iterator[tuple[int, Signal | None]]:
        at, end = self._range()
        with self._asking(self._topic):
            self._consumer.assign([self._at(at)])
            answered = time.monotonic()
            while at < end:
                message = self._consumer.poll(POLL_S)
                if message is None or ((error := message.error()) is not None and error.retriable()):
                    self._check_answer(answered)
                elif error is None:
                    at, answered = int(message.offset() or 0) + 1, time.monotonic()
                    yield at - 1, self._signal(message)
                elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                    return
                else:
                    raise self._kafka.KafkaException(error)

    def _range(self) -> tuple[int, int]:
        """Return where to begin and where to end; the group's offset may be one of an older topic of this name."""
        partitions = len(self._described(self._topic).partitions)
        if partitions != 1:
            raise ConfigurationError(
                f"topic {self._topic} of signals has {partitions} partitions",
                "Give it one: signals are acted on in their order.",
            )
        with self._asking(self._topic):
            low, high = self._consumer.get_watermark_offsets(self._at(0), timeout=TIMEOUT_S)
            [committed] = self._of_group(lambda: self._consumer.committed([self._at(0)], timeout=TIMEOUT_S))
        return committed.offset if low <= committed.offset <= high else low, high

    def _of_group(self, ask: Callable[[], Any]) -> Any:
        """Return what the group's coordinator answers; one that begins, or has moved, is asked again for a while."""
        error, asked = self._kafka.KafkaError, time.monotonic()
        passing = (error.NOT_COORDINATOR, error.COORDINATOR_NOT_AVAILABLE, error.COORDINATOR_LOAD_IN_PROGRESS)
        while True:
            try:
                return ask()
            except self._kafka.KafkaException as failure:
                if failure.args[0].code() not in passing or time.monotonic() - asked > TIMEOUT_S:
                    raise
            time.sleep(POLL_S)

    def _described(self, name: str) -> Any:
        with self._asking(name):
            topic = self._consumer.list_topics(name, timeout=TIMEOUT_S).topics[name]
            if topic.error is not None:
                raise self._kafka.KafkaException(topic.error)
        return topic

    def _check_answer(self, answered: float) -> None:
        if time.monotonic() - answered > TIMEOUT_S:
            raise self._kafka.KafkaException(self._kafka.KafkaError(self._kafka.KafkaError._TIMED_OUT))

    def _signal(self, message: Any) -> Signal | None:
        key = (message.key() or b"").decode(errors="replace")
        if key != self._key:
            self._others[repr(key[:KEY_CHARS]) if key else "none"] += 1
            return None
        # Offsets alone would be known already in a topic that was created anew.
        offset, at_ms = message.offset(), message.timestamp()[1]
        return signal_of(message.value() or b"", NAME, f"offset {offset} of {at_ms}", at_ms)

    def _tell_others(self) -> None:
        """Say once which other keys messages have: who sends them waits for an answer."""
        if not self._others:
            return
        told = [f"{key} ({count})" for key, count in sorted(self._others.items())]
        more = f" and {len(told) - MOST_KEYS} more" if len(told) > MOST_KEYS else ""
        keys = f"{', '.join(told[:MOST_KEYS])}{more}"
        ask = "signals: give messages of topic %s the key %r (topic.prefix); passed over are those of the keys %s"
        log.warning(ask, self._topic, self._key, keys)

    @contextmanager
    def _asking(self, topic: str) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            raise SourceError(
                f"Kafka does not serve topic {topic} at {self._servers}: {error.args[0].str()}",
                "Is the broker up, and the topic there?",
            ) from error
