"""A group's retry topic and dead letters on the brokers: created if missing, and checked, before the group reads.

What cannot work is reported at the start, not with the first message that fails, perhaps days later: a missing topic
that this user may not create, one without delays, one that this user may not write to.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from respool.client.messages import library
from respool.client.messages.errors import RetryTopicMissing
from respool.client.messages.library import KafkaException, log
from respool.client.messages.retry.failure_decisions import SizeLimits
from respool.client.messages.retry.retry_options import Retry
from respool.model.retry.group_topics import dead_letter_topic, retry_topic
from respool.model.times import format_duration_ms

_DAY_MS = 86_400_000
_DELAY = "respool.delay"
_DELAY_MS_MAX = "respool.delay.max.ms"
_BYTES_MAX = "max.message.bytes"
RETRY_CONFIGS: Mapping[str, str] = {_DELAY: "true", "retention.ms": str(14 * _DAY_MS)}
DEAD_LETTER_CONFIGS: Mapping[str, str] = {"retention.ms": str(30 * _DAY_MS)}

# More than the headers of a failure need.
_HEADERS_BYTES = 16 * 1024
# What librdkafka can send, and what a broker takes that does not say.
_LIBRARY_BYTES_MAX = 1_000_000_000
_DEFAULT_BYTES_MAX = 1_048_588
_ASK_SECONDS = 10.0
_AGAIN_SECONDS = 0.1
# Settings that say how to reach the brokers, by their first letters; others are a consumer's own.
_CONNECTION = (
    "api.version.",
    "broker.",
    "client.",
    "connections.",
    "debug",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "log",
    "metadata.",
    "oauth",
    "reconnect.",
    "resolve",
    "sasl.",
    "security.",
    "socket.",
    "ssl",
    "topic.metadata.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTopics:
    """The topics as they are."""

    # By name; the partition of a message is that of its origin modulo this.
    partitions: Mapping[str, int]
    limits: SizeLimits


def connection_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """Those of a consumer's settings that its producer needs, too."""
    made = {name: value for name, value in settings.items() if name.startswith(_CONNECTION)}
    return {**made, "bootstrap.servers": settings["bootstrap.servers"]}


def sizes_of_producer(bytes_max: int) -> dict[str, object]:
    """The settings of a producer for messages as large as the topics take, and a buffer with room for two of them."""
    bytes_max = min(bytes_max, _LIBRARY_BYTES_MAX)
    return {
        "message.max.bytes": max(bytes_max, _DEFAULT_BYTES_MAX),
        "queue.buffering.max.kbytes": max(64 * 1024, 2 * bytes_max // 1024),
    }


def prepare_retry_topics(
    settings: Mapping[str, object], *, group: str, retry: Retry, sources: Mapping[str, int]
) -> RetryTopics:
    """Create what is missing, with as many partitions as the largest of the sources has; check what is there.

    Args:
        settings: of the consumer.
        sources: the topics that the group reads, with their numbers of partitions.

    Raises:
        RetryTopicMissing: a topic is missing or cannot be used; the message has the command that makes it.
    """
    made = {**connection_settings(settings), "allow.auto.create.topics": False}
    admin = library.make(library.KafkaAdmin, made)
    return _Preparation(admin, group=group, retry=retry, sources=sources).run()


class _Preparation:
    def __init__(self, admin: Any, *, group: str, retry: Retry, sources: Mapping[str, int]) -> None:
        self._admin = admin
        self._group = group
        self._retry = retry
        self._sources = sources
        self._wanted = {retry_topic(group): RETRY_CONFIGS}
        if retry.dead_letters:
            self._wanted[dead_letter_topic(group)] = DEAD_LETTER_CONFIGS

    def run(self) -> RetryTopics:
        found = self._described(self._wanted)
        missing = self._wanted.keys() - found.keys()
        if missing:
            self._create(missing)
            found = self._described_soon()
        for topic, description in found.items():
            self._check_rights(topic, description)
        configs = {topic: self._configs_of(topic) for topic in self._wanted}
        for topic, actual in configs.items():
            self._check_configs(topic, actual)
        return RetryTopics(
            partitions={topic: len(one.partitions) for topic, one in found.items()},
            limits=self._limits(configs),
        )

    # -- what is there

    def _described(self, topics: Collection[str]) -> dict[str, Any]:
        """Those of these topics that exist, with this user's rights."""
        found = {}
        asked = self._admin.describe_topics(
            library.TopicCollection(list(topics)),
            include_authorized_operations=True,
            request_timeout=_ASK_SECONDS,
        )
        for topic, answer in asked.items():
            try:
                found[topic] = answer.result()
            except KafkaException as error:
                if error.args[0].code() not in library.UNKNOWN_TOPIC:
                    raise self._missing(topic, f"is not known: {library.reason(error)}") from error
        return found

    def _described_soon(self) -> dict[str, Any]:
        """Not every broker knows a new topic at once."""
        until = time.monotonic() + library.TOPIC_SECONDS
        while True:
            found = self._described(self._wanted)
            missing = self._wanted.keys() - found.keys()
            if not missing:
                return found
            if time.monotonic() > until:
                raise self._missing(min(missing), "was created, and no broker knows it")
            time.sleep(_AGAIN_SECONDS)

    def _configs_of(self, topic: str) -> dict[str, str | None]:
        resource = library.ConfigResource(library.TOPIC_RESOURCE, topic)
        asked = self._admin.describe_configs([resource], request_timeout=_ASK_SECONDS)
        try:
            found = asked[resource].result()
        except KafkaException as error:
            why = (
                f"cannot be checked, which needs the right DescribeConfigs: {library.reason(error)}"
            )
            raise self._missing(topic, why) from error
        return {name: entry.value for name, entry in found.items()}

    # -- what must be there

    def _create(self, topics: Collection[str]) -> None:
        new = [
            library.NewTopic(topic, self._partitions, config=self._configs_to_make(topic))
            for topic in topics
        ]
        for topic, answer in self._admin.create_topics(new, request_timeout=_ASK_SECONDS).items():
            try:
                answer.result()
            except KafkaException as error:
                # Another member of the group was faster.
                if error.args[0].code() != library.TOPIC_EXISTS:
                    why = f"is missing, and cannot be created: {library.reason(error)}"
                    raise self._missing(topic, why) from error
            else:
                log.info("created topic %s for group %r", topic, self._group)

    @property
    def _partitions(self) -> int:
        return max(self._sources.values())

    def _configs_to_make(self, topic: str) -> dict[str, str]:
        """Room for a source's largest message with the headers of its failure, if the source's limit is known."""
        configs = dict(self._wanted[topic])
        limits = []
        for source in self._sources:
            try:
                limits.append(_bytes_max(self._configs_of(source)))
            except RetryTopicMissing as unknown:
                log.info("%s", unknown)
        if limits and max(limits) < _LIBRARY_BYTES_MAX - _HEADERS_BYTES:
            configs[_BYTES_MAX] = str(max(limits) + _HEADERS_BYTES)
        return configs

    def _check_rights(self, topic: str, description: Any) -> None:
        rights = description.authorized_operations
        # Some brokers do not say.
        if rights and not library.MAY_WRITE & set(rights):
            raise self._missing(
                topic, "cannot be written to: this user does not have the permission Write"
            )

    def _check_configs(self, topic: str, actual: Mapping[str, str | None]) -> None:
        if _DELAY in self._wanted[topic]:
            if actual.get(_DELAY) != "true":
                raise self._missing(
                    topic,
                    f"has not {_DELAY}=true, so that failed messages would come back at once. It is set when a topic"
                    " is created: delete the topic if it is empty, or choose another group",
                )
            longest_ms = max(self._retry.delays_ms)
            limit_ms = int(actual.get(_DELAY_MS_MAX) or longest_ms)
            if longest_ms > limit_ms:
                raise self._missing(
                    topic,
                    f"delays by {format_duration_ms(limit_ms)} at most ({_DELAY_MS_MAX}), not by"
                    f" {format_duration_ms(longest_ms)}",
                )

    def _limits(self, configs: Mapping[str, Mapping[str, str | None]]) -> SizeLimits:
        sizes = {topic: _bytes_max(actual) for topic, actual in configs.items()}
        retry_bytes_max = sizes[retry_topic(self._group)]
        return SizeLimits(
            retry_bytes_max=retry_bytes_max,
            dead_letter_bytes_max=sizes.get(dead_letter_topic(self._group), retry_bytes_max),
        )

    def _missing(self, topic: str, why: str) -> RetryTopicMissing:
        configs = self._wanted.get(topic, {})
        given = "".join(f" --set {name}={value}" for name, value in configs.items())
        return RetryTopicMissing(
            f"{topic}, for what group {self._group!r} could not handle, {why}. To make it:"
            f" respool topic create {topic} --partitions {self._partitions}{given}"
        )


def _bytes_max(configs: Mapping[str, str | None]) -> int:
    return int(configs.get(_BYTES_MAX) or _DEFAULT_BYTES_MAX)
