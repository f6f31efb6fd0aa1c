"""A real Kafka broker for tests: one process, one node, on 127.0.0.1."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it has no __all__

from airflow_provider_db2cdc.sandbox.server.derby import free_port

JARS = Path(__file__).parents[2] / "build" / "jars" / "kafka"
START_S = 60.0
CLUSTER_ID = "db2cdcTestsKafka000000"
PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
log.dirs={folder}/logs
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""
JAVA = ("java", "-Xms96m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Broker:
    """A running broker."""

    def __init__(self, servers: str, process: subprocess.Popen[bytes]) -> None:
        self.servers = servers
        self.process = process
        self.admin = AdminClient({"bootstrap.servers": servers})

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic and wait until it is there."""
        topic = NewTopic(name, partitions, 1, config=config)
        self.admin.create_topics([topic], request_timeout=20)[name].result(20)
        # The broker answers before it serves the topic.
        deadline = time.monotonic() + 20
        while self.admin.list_topics(name, timeout=20).topics[name].error is not None:
            assert time.monotonic() < deadline, f"topic {name} is not served"
            time.sleep(0.05)

    def send(self, topic: str, *messages: tuple[str | None, str | bytes | None]) -> None:
        """Send keys and values, in their order."""
        producer = Producer({"bootstrap.servers": self.servers})
        for key, value in messages:
            producer.produce(topic, value, key)
        assert producer.flush(20) == 0

    def committed(self, topic: str, group: str = "shop-signal") -> int | None:
        """Return a group's offset, None when it has none."""
        with self._consumer(group) as consumer:
            [at] = consumer.committed([TopicPartition(topic, 0)], timeout=20)
        return at.offset if at.offset >= 0 else None

    def commit(self, topic: str, offset: int, group: str = "shop-signal") -> None:
        """Set a group's offset, wherever that is."""
        with self._consumer(group) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    def messages(self, topic: str) -> list[tuple[str, str]]:
        """Return the keys and values of all messages, in their order."""
        found: list[tuple[str, str]] = []
        with self._consumer("reader") as consumer:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
            consumer.assign([TopicPartition(topic, 0, 0)])
            while len(found) < end:
                message = consumer.poll(20)
                assert message is not None, f"only {len(found)} of {end} messages came"
                assert message.error() is None
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                found.append((key.decode(), value.decode()))
        return found

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        try:
            yield consumer
        finally:
            consumer.close()


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    """Start a broker whose files lie in `folder`, wait until it answers, and end it."""
    port, controller = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(PROPERTIES.format(port=port, controller=controller, folder=folder), encoding="utf-8")
    # What Spark ships is not fetched once more.
    scala = [*(Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar")]
    java = [*JAVA, "-cp", ":".join(map(str, [f"{JARS}/*", *scala]))]
    formatting = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(settings)]
    subprocess.run([*java, *formatting], check=True, capture_output=True, timeout=START_S)
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=subprocess.STDOUT)
    try:
        broker = Broker(f"127.0.0.1:{port}", process)
        _await(broker)
        yield broker
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a broker, at once if it does not by itself."""
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(15)


def _await(broker: Broker) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert broker.process.poll() is None, "the broker ended: see broker.log"
        try:
            broker.admin.list_topics(timeout=2)
            return
        except KafkaException:
            assert time.monotonic() < deadline, f"the broker does not answer within {START_S} s"
