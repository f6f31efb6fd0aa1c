"""Signals in a Kafka topic, as Debezium reads them: the key is topic.prefix, the value a JSON object."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, signal_of
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, SourceError

log = logging.getLogger(__name__)

NAME = "kafka"
POLL_S = 0.2
TIMEOUT_S = 20.0
"""Seconds that the broker has to answer one request."""

MOST_KEYS, KEY_CHARS = 10, 100
"""The most keys of ignored messages that the log shows, and the most characters of each."""
MOST_CHARS = 10_000
"""The most characters of an id and of a reason. A message that is too long for the broker would block later ones."""


class KafkaChannel:
    """`signal.kafka.topic` (by default `<topic.prefix>-signal`, one partition), read from the group's offset.

    The offset only moves past a message after it and all earlier ones were acted on. Messages with another key are
    ignored, and the log names these keys. If there is a `signal.kafka.outcomes.topic`, outcomes of signals go there.
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
        self._ignored_keys = Counter[str]()
        try:
            self._consumer = confluent_kafka.Consumer(self._settings(config))
        except confluent_kafka.KafkaException as error:
            raise ConfigurationError(
                f"signal.consumer.*: {error.args[0].str().rstrip('.')}", "They are librdkafka's properties, not Java's."
            ) from None

    def read(self) -> Sequence[Signal]:
        """Return the messages after the group's offset. Without an offset, the read begins at the topic's beginning.

        :raises ConfigurationError: when the topic has several partitions, because these have no order.
        :raises SourceError: when the broker cannot be reached, or reports an error.
        """
        self._ignored_keys.clear()
        signals = [signal for _, signal in self._messages() if signal is not None]
        self._warn_of_ignored()
        return signals

    def check(self) -> None:
        """Check that the topic of outcomes exists, if one is named. Nothing is written.

        :raises SourceError: when the topic does not exist, or the broker cannot be reached.
        """
        if self._outcomes:
            self._described(self._outcomes)

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        """Send the outcomes, and move the group's offset past the messages that were acted on.

        A retry sends the outcomes again. A later outcome of a snapshot, whose signal is consumed already, is lost if
        the broker cannot be reached then.

        :raises SourceError: when the outcomes cannot be sent, and the offset stays. Also when the offset cannot move.
        """
        self._send(outcomes)
        next_offset = None
        for offset, signal in self._messages():
            if signal is not None and not signal.is_answered(outcomes):
                break
            next_offset = offset + 1
        if next_offset is not None:
            with self._naming(self._topic):
                self._ask_group(lambda: self._consumer.commit(offsets=[self._at(next_offset)], asynchronous=False))

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _settings(self, config: PipelineConfig) -> dict[str, Any]:
        """Return the consumer's settings. The last two cannot be overridden.

        The acknowledgement needs the first of these, and the end of a read the second.
        """
        return {
            "bootstrap.servers": self._servers,
            "group.id": config.kafka_group_id or f"{config.server_name}-signal",
            "socket.timeout.ms": int(TIMEOUT_S * 1000),
            # This limits how long a commit waits for the group's coordinator. There is no session without subscribing.
            "session.timeout.ms": int(TIMEOUT_S * 1000),
            **config.kafka_consumer,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }

    def _send(self, outcomes: Collection[SignalOutcome]) -> None:
        if not self._outcomes:
            return
        errors: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        with self._naming(self._outcomes):
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
        position, end = self._range()
        with self._naming(self._topic):
            self._consumer.assign([self._at(position)])
            answered = time.monotonic()
            while position < end:
                message = self._consumer.poll(POLL_S)
                if message is None or ((error := message.error()) is not None and error.retriable()):
                    self._check_answer(answered)
                elif error is None:
                    position, answered = int(message.offset() or 0) + 1, time.monotonic()
                    yield position - 1, self._signal(message)
                elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                    return
                else:
                    raise self._kafka.KafkaException(error)

    def _range(self) -> tuple[int, int]:
        """Return the first offset to read, and the end.

        The group's offset may come from an older topic of the same name. It does not count then.
        """
        partitions = len(self._described(self._topic).partitions)
        if partitions != 1:
            raise ConfigurationError(
                f"topic {self._topic} of signals has {partitions} partitions",
                "Give it one: signals are acted on in their order.",
            )
        with self._naming(self._topic):
            low, high = self._consumer.get_watermark_offsets(self._at(0), timeout=TIMEOUT_S)
            [committed] = self._ask_group(lambda: self._consumer.committed([self._at(0)], timeout=TIMEOUT_S))
        return committed.offset if low <= committed.offset <= high else low, high

    def _ask_group(self, ask: Callable[[], Any]) -> Any:
        """Return the answer of the group's coordinator. While it starts or moves, the request is repeated."""
        error, started = self._kafka.KafkaError, time.monotonic()
        passing = (error.NOT_COORDINATOR, error.COORDINATOR_NOT_AVAILABLE, error.COORDINATOR_LOAD_IN_PROGRESS)
        while True:
            try:
                return ask()
            except self._kafka.KafkaException as failure:
                if failure.args[0].code() not in passing or time.monotonic() - started > TIMEOUT_S:
                    raise
            time.sleep(POLL_S)

    def _described(self, name: str) -> Any:
        with self._naming(name):
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
            self._ignored_keys[repr(key[:KEY_CHARS]) if key else "none"] += 1
            return None
        # A topic that was created again repeats offsets, so the id has the time too.
        offset, at_ms = message.offset(), message.timestamp()[1]
        return signal_of(message.value() or b"", NAME, f"offset {offset} of {at_ms}", at_ms)

    def _warn_of_ignored(self) -> None:
        """Warn once of the other keys that messages have, because their senders wait for an answer."""
        if not self._ignored_keys:
            return
        counts = [f"{key} ({count})" for key, count in sorted(self._ignored_keys.items())]
        keys = shortened(counts, MOST_KEYS)
        text = "signals: give messages of topic %s the key %r (topic.prefix); passed over are those of the keys %s"
        log.warning(text, self._topic, self._key, keys)

    @contextmanager
    def _naming(self, topic: str) -> Iterator[None]:
        """Turn an error of Kafka into one that names the topic."""
        try:
            yield
        except self._kafka.KafkaException as error:
            raise SourceError(
                f"Kafka does not serve topic {topic} at {self._servers}: {error.args[0].str()}",
                "Is the broker up, and the topic there?",
            ) from error
