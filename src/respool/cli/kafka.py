"""A cluster, as the client library sees it: connect, ask, change.

Everything else in this room speaks `Cluster` and the small values below. Nothing here waits longer than a few seconds
for a broker that is not there: a plain TCP connection is tried first, because it says at once, and precisely, what
the client library would retry in silence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self

from respool.cli.broker_check import CONNECT_SECONDS, check_broker
from respool.cli.connection_options import BrokerConnection
from respool.cli.errors import BrokerUnreachable, PartitionOffline
from respool.cli.isolation import Isolation
from respool.cli.kafka_library import (
    CLIENT_ID,
    REQUEST_SECONDS,
    UNLED_CODES,
    KafkaException,
    TopicPartition,
    client,
    client_admin,
    quiet,
    reason,
    translated,
)
from respool.model.operator_errors import NotFound, OperatorError


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    # Partition number -> its leader's broker id; None when nobody leads it.
    leaders: Mapping[int, int | None]
    # Partition number -> the brokers that hold it, and those of them that are in sync.
    replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    in_sync: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def partitions(self) -> list[int]:
        return sorted(self.leaders)

    @property
    def is_internal(self) -> bool:
        return self.name.startswith("__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    value: str
    # Who set it: 'topic', 'broker' or 'default'.
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """A partition holds the offsets from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def messages(self) -> int:
        return max(0, self.end - self.start)


class Cluster:
    """A broker that answered, and what can be asked of it."""

    def __init__(self, connection: BrokerConnection, admin: Any) -> None:
        self.connection = connection
        self.broker = connection.bootstrap
        # None where the broker names none, as old ones of Kafka.
        self.id: str | None = None
        self._admin = admin

    @classmethod
    def connect(cls, connection: BrokerConnection) -> Self:
        """Make sure that a Kafka broker answers there.

        Raises:
            BrokerUnreachable: nobody listens, or what listens does not speak Kafka.
        """
        broker = connection.bootstrap
        check_broker(broker)
        settings = client_config(connection)
        cluster = cls(connection, client_admin.AdminClient(settings, logger=quiet()))
        try:
            cluster.id = cluster._admin.list_topics(timeout=CONNECT_SECONDS).cluster_id
        except KafkaException as error:
            raise BrokerUnreachable(
                f"something listens at {broker}, but it does not answer as a Kafka broker does: {reason(error)}",
                hint="check the port, and --security-protocol if this listener has TLS or logins",
            ) from error
        return cluster

    def topics(self) -> dict[str, TopicInfo]:
        with translated(self.broker):
            metadata = self._admin.list_topics(timeout=REQUEST_SECONDS)
        return {
            topic.topic: TopicInfo(
                name=topic.topic,
                leaders={
                    number: partition.leader if partition.leader >= 0 else None
                    for number, partition in topic.partitions.items()
                },
                replicas={
                    number: tuple(partition.replicas)
                    for number, partition in topic.partitions.items()
                },
                in_sync={
                    number: tuple(partition.isrs) for number, partition in topic.partitions.items()
                },
            )
            for topic in metadata.topics.values()
            if topic.error is None
        }

    def topic(self, name: str, *, hint: str = "") -> TopicInfo:
        """
        Raises:
            NotFound: there is no such topic; told with a name that is spelled alike, or with the hint.
        """
        topics = self.topics()
        if name in topics:
            return topics[name]
        alike = get_close_matches(name, topics, n=1)
        if alike:
            hint = f"did you mean {alike[0]}?"
        elif not hint:
            hint = (
                f"respool topic list shows those there are, respool topic create {name} makes one"
            )
        raise NotFound(f"there is no topic {name!r} at {self.broker}", hint=hint)

    def ranges(
        self,
        topics: Iterable[TopicInfo],
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        led_only: bool = False,
    ) -> dict[tuple[str, int], OffsetRange]:
        """What every partition holds now, as such a reader sees it. A partition that nobody leads is left out.

        With `led_only` also one whose leader turns out to lead no more; without it that is an error.

        Raises:
            NobodyLeads: a broker that is said to lead a partition does not.
        """
        led = [
            (topic.name, number)
            for topic in topics
            for number, leader in topic.leaders.items()
            if leader is not None
        ]
        but = UNLED_CODES if led_only else frozenset[int]()
        starts = self._list_offsets(led, client_admin.OffsetSpec.earliest(), isolation, but=but)
        ends = self._list_offsets(led, client_admin.OffsetSpec.latest(), isolation, but=but)
        return {
            key: OffsetRange(start=starts[key], end=ends[key])
            for key in led
            if key in starts and key in ends
        }

    def offsets_at(
        self,
        topic: TopicInfo,
        partitions: Sequence[int],
        at_ms: int,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> dict[int, int | None]:
        """Per partition the first offset whose timestamp is `at_ms` or later; None when there is none."""
        led = [(topic.name, n) for n in partitions if topic.leaders[n] is not None]
        found = self._list_offsets(led, client_admin.OffsetSpec.for_timestamp(at_ms), isolation)
        return {number: offset if offset >= 0 else None for (_, number), offset in found.items()}

    def newest_ms(self, topic: TopicInfo) -> int:
        """The latest timestamp of any message; -1 when there is none."""
        led = [
            (topic.name, number) for number, leader in topic.leaders.items() if leader is not None
        ]
        answers = self._ask_offsets(
            led, client_admin.OffsetSpec.max_timestamp(), Isolation.READ_COMMITTED
        )
        return max((int(answer.timestamp) for answer in answers.values()), default=-1)

    def settings(
        self, topics: Sequence[str], *, seconds: float = REQUEST_SECONDS
    ) -> dict[str, list[Setting]]:
        if not topics:
            return {}
        resources = [
            client_admin.ConfigResource(client_admin.ResourceType.TOPIC, name) for name in topics
        ]
        answers = self._ask(
            lambda: self._admin.describe_configs(resources, request_timeout=seconds)
        )
        return {
            resource.name: sorted(map(_setting, entries.values()), key=lambda setting: setting.name)
            for resource, entries in answers.items()
        }

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        settings: Mapping[str, str],
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic; what is None is the broker's to choose."""
        new = client_admin.NewTopic(
            name,
            -1 if partitions is None else partitions,
            -1 if replication_factor is None else replication_factor,
            config=dict(settings),
        )
        self._ask(lambda: self._admin.create_topics([new], request_timeout=REQUEST_SECONDS))

    def grow_topic(self, name: str, *, partitions: int) -> None:
        grown = client_admin.NewPartitions(name, partitions)
        self._ask(lambda: self._admin.create_partitions([grown], request_timeout=REQUEST_SECONDS))

    def alter_topic(self, name: str, *, settings: Mapping[str, str], unset: Sequence[str]) -> None:
        operation = client_admin.AlterConfigOpType
        changes = [
            client_admin.ConfigEntry(key, value, incremental_operation=operation.SET)
            for key, value in settings.items()
        ] + [
            client_admin.ConfigEntry(key, None, incremental_operation=operation.DELETE)
            for key in unset
        ]
        resource = client_admin.ConfigResource(
            client_admin.ResourceType.TOPIC, name, incremental_configs=changes
        )
        self._ask(
            lambda: self._admin.incremental_alter_configs(
                [resource], request_timeout=REQUEST_SECONDS
            )
        )

    def ask(self, request: Callable[[Any], Mapping[Any, "Future[Any]"]]) -> dict[Any, Any]:
        """Put a request of the client library's admin; `kafka_groups.py` has those about groups."""
        return self._ask(lambda: request(self._admin))

    def addresses(self) -> dict[int, tuple[str, int]]:
        """Where the brokers are, by their ids."""
        with translated(self.broker):
            brokers = self._admin.list_topics(timeout=REQUEST_SECONDS).brokers
        return {number: (str(each.host), int(each.port)) for number, each in brokers.items()}

    def creates_topics(self) -> bool:
        """Whether the broker makes a topic when a client asks for one that is not there; yes, if it does not say."""
        number = next(iter(self.addresses()))
        resource = client_admin.ConfigResource(client_admin.ResourceType.BROKER, str(number))
        try:
            answers = self._ask(
                lambda: self._admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)
            )
        except OperatorError:
            return True
        for entries in answers.values():
            entry = entries.get("auto.create.topics.enable")
            if entry is not None:
                return str(entry.value).lower() == "true"
        return True

    def delete_topic(self, name: str) -> None:
        self._ask(lambda: self._admin.delete_topics([name], request_timeout=REQUEST_SECONDS))

    def producer(self, **config: object) -> Any:
        with translated(self.broker):
            return client.Producer(client_config(self.connection) | _dotted(config), logger=quiet())

    def consumer(self, *, on_error: Callable[[Any], None], **config: object) -> Any:
        # Without it librdkafka hands out whatever a damaged batch unpacks to.
        settings = client_config(self.connection) | {"check.crcs": True} | _dotted(config)
        settings["error_cb"] = on_error
        with translated(self.broker):
            return client.Consumer(settings, logger=quiet())

    def _list_offsets(
        self,
        keys: Sequence[tuple[str, int]],
        spec: Any,
        isolation: Isolation,
        *,
        but: frozenset[int] = frozenset(),
    ) -> dict[tuple[str, int], int]:
        answers = self._ask_offsets(keys, spec, isolation, but=but)
        return {(key.topic, key.partition): answer.offset for key, answer in answers.items()}

    def _ask_offsets(
        self,
        keys: Sequence[tuple[str, int]],
        spec: Any,
        isolation: Isolation,
        *,
        but: frozenset[int] = frozenset(),
    ) -> dict[Any, Any]:
        if not keys:
            return {}
        asked = {TopicPartition(topic, number): spec for topic, number in keys}
        # By default as a consumer sees it: what an open transaction has written does not count yet.
        level = client.IsolationLevel[isolation.name]
        return self._ask(
            lambda: self._admin.list_offsets(
                asked, isolation_level=level, request_timeout=REQUEST_SECONDS
            ),
            but=but,
        )

    def _ask(
        self,
        request: Callable[[], Mapping[Any, "Future[Any]"]],
        *,
        but: frozenset[int] = frozenset(),
    ) -> dict[Any, Any]:
        """What was answered to each of the things asked; those answered with an error of `but` are left out."""
        answers = {}
        with translated(self.broker):
            for key, future in request().items():
                try:
                    answers[key] = future.result(timeout=REQUEST_SECONDS + 1)
                except KafkaException as error:
                    if error.args[0].code() not in but:
                        raise
        return answers


def offline(cluster: Cluster, topic: TopicInfo, partition: int) -> PartitionOffline:
    """The error for a partition that nobody leads."""
    there = cluster.addresses()
    absent = [one for one in topic.replicas.get(partition, ()) if one not in there]
    return PartitionOffline(topic.name, partition, absent=absent)


def client_config(connection: BrokerConnection) -> dict[str, object]:
    return {
        **connection.library_settings(),
        "client.id": CLIENT_ID,
        # Short pauses: the person at the keyboard restarts a broker and expects the command to notice.
        "reconnect.backoff.max.ms": 1000,
        "socket.connection.setup.timeout.ms": int(CONNECT_SECONDS * 1000),
    }


def _setting(entry: Any) -> Setting:
    source = client_admin.ConfigSource(entry.source)
    if source == client_admin.ConfigSource.DYNAMIC_TOPIC_CONFIG:
        who = "topic"
    elif source == client_admin.ConfigSource.DEFAULT_CONFIG:
        who = "default"
    else:
        who = "broker"
    return Setting(name=entry.name, value=entry.value or "", source=who)


def _dotted(config: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in config.items()}
