"""Administers a cluster for an operator: topics, offsets and configs. Wraps the client's administration.

Client errors become failures with a hint (`errors.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Self

from respool.client.kafka import admin, configs, list_offsets
from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, ConfigSource
from respool.client.kafka.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    NobodyAnswers,
    NoBroker,
    NoReply,
    nobody_listens,
)
from respool.client.kafka.layout_descriptions import TopicLayout, describe_layout
from respool.client.kafka.list_offsets import Isolation, OffsetRange
from respool.client.kafka.metadata import Address, Place, TopicMetadata
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.client.kafka.view_descriptions import ViewDescription, all_views
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError
from respool.model.setting_fields import TOPIC_DEFAULT_NAMES
from respool.model.topic_config import TopicConfig
from respool.operate.errors import PartitionOffline, client_errors_translated, operator_error_of

CLIENT_ID = "respool-cli"
# For the first response: an operator should not wait longer for a wrong address.
CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    name: str
    value: str
    # 'topic', 'broker' or 'default'.
    source: str


class ClusterAdmin:
    """Use it as a context manager or `close` it; it is also closed at process exit."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @classmethod
    def connect(
        cls,
        bootstrap: Bootstrap,
        security: Security = IN_THE_CLEAR,
        *,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> Self:
        """Connect to one of the brokers. `settings` are arguments of `Cluster` that replace the defaults below.

        Raises:
            UsageError: an address is not HOST:PORT.
            Unreachable: no broker listens, or none answers as a Kafka broker.
            OperatorError: TLS or the login was refused.
        """
        _check_answers(bootstrap, security, settings)
        admin = cls.unconnected(bootstrap, security, settings=settings)
        with client_errors_translated():
            admin.cluster.retrying(admin.cluster.refresh_brokers)
        return admin

    @classmethod
    def unconnected(
        cls,
        bootstrap: Bootstrap,
        security: Security = IN_THE_CLEAR,
        *,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> Self:
        """Like `connect`, for a caller that makes the first contact.

        Raises:
            UsageError: an address is not HOST:PORT.
        """
        defaults: dict[str, Any] = {
            "client_id": CLIENT_ID,
            "connect_timeout_ms": int(CONNECT_SECONDS * 1000),
            "request_timeout_ms": int(REQUEST_SECONDS * 1000),
            "retry_ms": int(REQUEST_SECONDS * 1000),
            # A broker has answered before: one that does not answer now may be restarting.
            "first_contact_ms": int(REQUEST_SECONDS * 1000),
        }
        try:
            return cls(Cluster(bootstrap, security=security, **{**defaults, **settings}))
        except BadArgument as error:
            raise UsageError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def id(self) -> str | None:
        return self.cluster.id

    # -- topics ------------------------------------------------------------------------------------------------------

    def topics(self, *, named: Iterable[str] = ()) -> dict[str, TopicMetadata]:
        """All topics that brokers list, and those of `named` that exist: a view is found by its name."""
        with client_errors_translated():
            topics = self.cluster.retrying(self.cluster.refresh_all)
            unlisted = sorted({*named} - topics.keys())
            if unlisted:
                topics |= self.cluster.retrying(lambda: self.cluster.refresh_named(unlisted))
        return topics

    def topic(self, name: str, *, hint: str = "") -> TopicMetadata:
        """
        Raises:
            NotFound: there is no such topic; the hint is `hint`, or the name of a similarly spelled topic.
        """
        topics = self.topics(named=[name])
        if name in topics:
            return topics[name]
        alike = get_close_matches(name, topics, n=1)
        if alike:
            hint = f"did you mean {alike[0]}?"
        elif not hint:
            hint = (
                f"respool topic list shows those there are, respool topic create {name} makes one"
            )
        raise NotFound(f"there is no topic {name!r} at {self.bootstrap}", hint=hint)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        settings: Mapping[str, str],
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic. `partitions` and `replication_factor`: None means the broker's default.

        Raises:
            TopicExists: there is a topic of this name.
        """
        with client_errors_translated():
            admin.create_topic(
                self.cluster,
                name,
                partitions=admin.BROKER_DEFAULT if partitions is None else partitions,
                replication_factor=(
                    admin.BROKER_DEFAULT if replication_factor is None else replication_factor
                ),
                configs=settings,
            )

    def grow_topic(self, name: str, *, partitions: int) -> None:
        with client_errors_translated():
            admin.create_partitions(self.cluster, name, count=partitions)

    def layout(self, name: str) -> TopicLayout | None:
        """The layout of a topic that was shrunk; None for all others.

        Raises:
            NotFound: there is no such topic.
        """
        with client_errors_translated():
            return self.cluster.retrying(lambda: describe_layout(self.cluster, name))

    def delete_topic(self, name: str) -> None:
        with client_errors_translated():
            admin.delete_topic(self.cluster, name)

    # -- configs -----------------------------------------------------------------------------------------------------

    def settings(
        self, topics: Sequence[str], *, seconds: float = REQUEST_SECONDS
    ) -> dict[str, list[TopicSetting]]:
        """Topic settings by topic, sorted by name. Transient errors are retried for `seconds`."""
        if not topics:
            return {}
        with client_errors_translated():
            found = self.cluster.retrying(
                lambda: configs.describe_configs(self.cluster, ConfigResource.TOPIC, topics),
                limit_ms=int(seconds * 1000),
            )
        return {
            topic: sorted(
                (
                    TopicSetting(name=one.name, value=one.value or "", source=_source(one.source))
                    for one in entries.values()
                ),
                key=lambda one: one.name,
            )
            for topic, entries in found.items()
        }

    def views(self) -> dict[str, ViewDescription]:
        """All views, by name, also those that are not listed."""
        with client_errors_translated():
            return self.cluster.retrying(lambda: all_views(self.cluster))

    def alter_topic(self, name: str, *, settings: Mapping[str, str], unset: Sequence[str]) -> None:
        with client_errors_translated():
            configs.alter_configs(
                self.cluster, ConfigResource.TOPIC, name, values=settings, deleted=unset
            )

    def creates_topics(self) -> bool:
        """True if brokers auto-create topics that a client requests; True if they do not report it."""
        name = "auto.create.topics.enable"
        broker = str(min(self.cluster.brokers))
        try:
            with client_errors_translated():
                found = configs.describe_configs(
                    self.cluster, ConfigResource.BROKER, [broker], keys=[name]
                )
        except OperatorError:
            return True
        entry = found.get(broker, {}).get(name)
        return entry is None or str(entry.value).lower() == "true"

    def default_topic_settings(self) -> dict[str, str]:
        """The settings of topics that brokers auto-create; those that they do not report are missing."""
        broker = str(min(self.cluster.brokers))
        try:
            with client_errors_translated():
                found = configs.describe_configs(self.cluster, ConfigResource.BROKER, [broker])
        except OperatorError:
            return {}
        entries = found.get(broker, {})
        defaults = {
            name: entries.get(TOPIC_DEFAULT_NAMES.get(name, name)) for name in TopicConfig().as_text
        }
        return {
            name: entry.value
            for name, entry in defaults.items()
            if entry is not None and entry.value is not None
        }

    # -- offsets -----------------------------------------------------------------------------------------------------

    def ranges(
        self,
        topics: Iterable[TopicMetadata],
        *,
        isolation: Isolation = "read_committed",
        led_only: bool = False,
    ) -> dict[Place, OffsetRange]:
        """The current offset range of each partition that has a leader, as a reader with this isolation sees it.

        With `led_only`, partitions whose leader turns out to have changed are left out too; otherwise that is an error.
        """
        with client_errors_translated():
            return list_offsets.offset_ranges(
                self.cluster, _led(topics), isolation=isolation, led_only=led_only
            )

    def offsets_at(
        self,
        topic: TopicMetadata,
        partitions: Iterable[int],
        at_ms: int,
        *,
        isolation: Isolation = "read_committed",
    ) -> dict[int, int | None]:
        """By partition, the first offset whose timestamp is `at_ms` or later; None if there is none."""
        led = [one for one in partitions if topic.leaders[one] is not None]
        with client_errors_translated():
            found = list_offsets.offsets_for(
                self.cluster, topic.name, led, at_ms, isolation=isolation
            )
        return {number: None if one is None else one.offset for number, one in found.items()}

    def newest_ms(self, topic: TopicMetadata) -> int:
        """The largest timestamp of any message; -1 if the topic has none."""
        with client_errors_translated():
            found = list_offsets.list_offsets(
                self.cluster, _led([topic]), list_offsets.MAX_TIMESTAMP
            )
        return max((one.timestamp_ms for one in found.values() if one is not None), default=-1)

    # -- brokers -----------------------------------------------------------------------------------------------------

    def addresses(self) -> Mapping[int, Address]:
        """The brokers' addresses by id."""
        with client_errors_translated():
            return self.cluster.retrying(self.cluster.refresh_brokers)

    def offline(self, topic: TopicMetadata, partition: int) -> PartitionOffline:
        """The error for a partition without a leader."""
        there = self.addresses()
        absent = [one for one in topic.replicas.get(partition, ()) if one not in there]
        return PartitionOffline(topic.name, partition, absent=absent)


def _check_answers(bootstrap: Bootstrap, security: Security, settings: Mapping[str, Any]) -> None:
    defaults: dict[str, Any] = {
        "client_id": CLIENT_ID,
        "connect_timeout_ms": int(CONNECT_SECONDS * 1000),
        "request_timeout_ms": int(CONNECT_SECONDS * 1000),
    }
    try:
        cluster = Cluster(bootstrap, security=security, **{**defaults, **settings})
    except BadArgument as error:
        raise UsageError(str(error)) from error
    with cluster:
        make_first_contact(cluster)


def make_first_contact(cluster: Cluster) -> None:
    """Learn the brokers from one of the bootstrap addresses, without retries.

    Raises:
        Unreachable: no broker listens, or none answers as a Kafka broker.
        OperatorError: TLS or the login was refused.
        ClientClosed: the client was interrupted.
    """
    try:
        cluster.refresh_brokers()
    except ClientClosed:
        raise
    except NoBroker as error:
        raise operator_error_of(error) from error
    except BrokerUnreachable as error:
        raise _no_kafka(cluster, error) from error
    except ClientError as error:
        raise operator_error_of(error) from error


def _no_kafka(cluster: Cluster, error: BrokerUnreachable) -> Unreachable:
    """The error for addresses where something accepts connections, and none answers as a Kafka broker."""
    failures = error.failures if isinstance(error, NobodyAnswers) else (error,)
    silent = [one for one in failures if isinstance(one, NoReply)]
    if silent and all(one in silent or nobody_listens(one) for one in failures):
        named = " and ".join(one.address for one in silent)
        return Unreachable(
            f"{named} accepted the connection and did not answer within {silent[0].waited_s:g} s",
            hint="the broker may be suspended, overloaded or still starting: see its log, or try again",
        )
    protocol = cluster.security.origin or "the security protocol"
    return Unreachable(
        f"something listens at {cluster.bootstrap}, but it does not answer as a Kafka broker does: {error}",
        hint=(
            f"check the port, and {protocol} if this listener has TLS or logins"
            if cluster.security.tls is None
            else f"this listener is likely one without TLS: check the port, and {protocol}"
        ),
    )


def _led(topics: Iterable[TopicMetadata]) -> list[Place]:
    return [
        (topic.name, number)
        for topic in topics
        for number, leader in topic.leaders.items()
        if leader is not None
    ]


def _source(source: int) -> str:
    if source == ConfigSource.TOPIC:
        return "topic"
    return "default" if source == ConfigSource.DEFAULT else "broker"
