"""Who is compared: a running broker together with the settings that topics get there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.broker_process import SERVE, BrokerProcess, MeasuredProcess
from bench.requests import Client
from bench.versus.kafka_jars import KafkaJars
from bench.versus.kafka_process import KafkaProcess
from bench.versus.leash import LEASH

KAFKA = "Kafka"
# Kafka's promise: acknowledged when the operating system has it. Like with like.
RESPOOL = "Respool"
# Respool's own default: acknowledged when the disk has it.
RESPOOL_SYNCED = "Respool, synced"

RESPOOL_SETTINGS = {"group_initial_rebalance_delay_ms": 0}
FLUSH_OS = {"respool.flush": "os"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    broker: MeasuredProcess
    topic_settings: Mapping[str, str]

    def create_topic(self, topic: str, *, partitions: int = 1) -> None:
        with Client(self.broker.host, self.broker.port) as client:
            client.create_topic(topic, partitions=partitions, settings=self.topic_settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contenders:
    kafka: Contender
    respool: Contender
    synced: Contender

    @property
    def like_with_like(self) -> Sequence[Contender]:
        """Where Respool's two ways to write make no difference, or cannot be distinguished."""
        return (self.respool, self.kafka)

    @property
    def all(self) -> Sequence[Contender]:
        return (self.respool, self.kafka, self.synced)


def respool_process() -> BrokerProcess:
    return BrokerProcess(RESPOOL_SETTINGS, command=(*LEASH, *SERVE))


@contextmanager
def started(jars: KafkaJars) -> Iterator[Contenders]:
    """Both brokers on fresh folders. They run side by side, and only one is given work at a time."""
    with KafkaProcess(jars) as kafka, respool_process() as respool:
        yield Contenders(
            kafka=Contender(name=KAFKA, broker=kafka, topic_settings={}),
            respool=Contender(name=RESPOOL, broker=respool, topic_settings=FLUSH_OS),
            synced=Contender(name=RESPOOL_SYNCED, broker=respool, topic_settings={}),
        )
