"""CreateTopics (key 19): each topic on its own; one that cannot be created does not affect the others.

With `respool.view.of` and `respool.view.where` it is a view of another topic.

The reply is sent when the new partitions have leaders, or when the request times out. After a timeout the topics exist
all the same, but the client should verify that.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from respool.broker.admin_log import listed, quoted
from respool.broker.broker import Broker
from respool.broker.handlers.support.config_entries import (
    BrokerLayers,
    ConfigEntry,
    topic_entries,
    view_entries,
)
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import (
    CREATE_ON_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    READ_TOPIC,
)
from respool.broker.metadata.topic_changes import USE_DEFAULT, NewTopic
from respool.broker.outcome import Reply
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidRequest,
    RequestError,
    RequestTimedOut,
)
from respool.model.security.security_errors import TopicAuthorizationFailed
from respool.model.view_config import OF, settings_of
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply
from respool.wire.shape import milliseconds

CONFIGS_FROM_VERSION = 5
# From this version on clients know that a quota refuses a topic (KIP-599).
STRICT_QUOTA_VERSION = 6
# Topics of a reply between which other requests are served.
SHOWN_AT_ONCE = 50


@serves(
    Api.CREATE_TOPICS,
    versions=(2, 7),
    rights=(
        CREATE_ON_CLUSTER | CREATE_TOPIC,
        DESCRIBE_TOPIC_CONFIGS.when("the reply has configs and counts (version 5 on)"),
        READ_TOPIC.when("it is the parent of a view that is created"),
    ),
)
async def create_topics(request: Request, broker: Broker) -> Reply:
    body = request.body
    times_named = Counter(topic.name for topic in body.topics)
    wanted: list[NewTopic] = []
    refused: dict[str, RequestError] = {}
    for topic in {topic.name: topic for topic in body.topics}.values():
        try:
            _authorize(request, broker, topic)
            if times_named[topic.name] > 1:
                raise InvalidRequest(f"the topic {topic.name!r} is in the request more than once")
            new = _wanted(topic)
            if not body.validate_only:
                count = _partition_count(new, default=broker.settings.topics.num_partitions)
                broker.quotas.mutate(request, count, strict=request.version >= STRICT_QUOTA_VERSION)
            wanted.append(new)
        except RequestError as error:
            refused[topic.name] = error
    created: dict[str, TopicImage] = {}
    # A client that gets TOPIC_ALREADY_EXISTS must find the topic, and one that gets a view its parent.
    needed = {name for one in wanted for name in (one.name, one.parent) if name}
    with broker.auto_created.wanted(needed):
        await broker.auto_created.wait_for_deletions()
        outcomes = await broker.topics.create_each(wanted, validate_only=body.validate_only)
    for name, outcome in outcomes.items():
        if isinstance(outcome, RequestError):
            refused[name] = outcome
        else:
            created[name] = outcome
    if not body.validate_only:
        for one in created.values():
            broker.admin_log.log(request, _log_text(one))
        refused |= await _unled(broker, created, timeout_ms=milliseconds(body.timeout))
    shown = _ShownConfigs(request, broker)
    results: list[dict[str, object]] = []
    for name in times_named:
        if len(results) % SHOWN_AT_ONCE == 0:
            # Serve requests before the next ones.
            await asyncio.sleep(0)
        results.append(
            _refused(name, refused[name]) if name in refused else _created(created[name], shown)
        )
    return [encode_reply(request, {"throttle_time": 0, "topics": results})]


async def _unled(
    broker: Broker, created: Collection[str], *, timeout_ms: int
) -> dict[str, RequestError]:
    """Return the created topics that have no leader when the timeout has passed."""
    if await broker.catalog.wait_until_led(created, timeout_ms=timeout_ms):
        return {}
    return {
        name: RequestTimedOut(f"the topic {name!r} is created, but not all of it is led yet")
        for name in created
        if not broker.catalog.is_led(name)
    }


def _authorize(request: Request, broker: Broker, topic: Any) -> None:
    """
    Raises:
        TopicAuthorizationFailed: the client may not create the topic, or not read the parent of the view.
    """
    access = broker.access
    if not access.has(request, CREATE_ON_CLUSTER) and not access.may(
        request, CREATE_TOPIC, topic.name
    ):
        raise TopicAuthorizationFailed("Authorization failed.")
    for one in topic.configs:
        if one.name == OF and one.value:
            access.check(request, READ_TOPIC, one.value)


def _wanted(topic: Any) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        overrides=_overrides(topic),
        assignment=_assignment(topic),
    )


def _partition_count(topic: NewTopic, *, default: int) -> int:
    """How many partitions it would have. A view has none of its own, and is one change."""
    if topic.parent:
        return 1
    if topic.assignment:
        return len(topic.assignment)
    return default if topic.partition_count == USE_DEFAULT else max(1, topic.partition_count)


def _overrides(topic: Any) -> dict[str, str]:
    null = [one.name for one in topic.configs if one.value is None]
    if null:
        raise InvalidConfig(f"no value given for {', '.join(null)}")
    return {one.name: one.value for one in topic.configs}


def _assignment(topic: Any) -> dict[int, tuple[int, ...]] | None:
    if not topic.assignments:
        return None
    if topic.num_partitions != USE_DEFAULT or topic.replication_factor != USE_DEFAULT:
        raise InvalidRequest(
            f"replicas are assigned by hand, so the number of partitions ({topic.num_partitions}) and the "
            f"replication factor ({topic.replication_factor}) must both be -1"
        )
    assignment = {one.partition_index: one.broker_ids for one in topic.assignments}
    if len(assignment) < len(topic.assignments):
        raise InvalidReplicaAssignment("a partition has its replicas assigned more than once")
    return assignment


def _log_text(topic: TopicImage) -> str:
    if topic.view is not None:
        settings = listed(f"{key}={quoted(text)}" for key, text in settings_of(topic).items())
        return f"created view {topic.name!r}: {settings}"
    facts = [
        f"partitions {len(topic.partitions)}",
        f"replication factor {len(topic.partitions[0].replicas)}",
        *(f"{name}={quoted(value)}" for name, value in topic.overrides.items()),
    ]
    return f"created topic {topic.name!r}: {listed(facts)}"


class _ShownConfigs:
    """The settings in a reply: topics that are created together mostly have the same."""

    def __init__(self, request: Request, broker: Broker) -> None:
        self._request = request
        self._access = broker.access
        self._layers = BrokerLayers.of(
            broker.settings, broker.image.broker_overrides, defaults=broker.catalog.topic_defaults
        )
        self._version = request.version
        self._shown: dict[tuple[tuple[str, str], ...], list[dict[str, object]]] = {}

    def refusal(self, topic: TopicImage) -> RequestError | None:
        """Why the client sees neither settings nor counts."""
        if self._version < CONFIGS_FROM_VERSION:
            return None
        return self._access.refusal(self._request, DESCRIBE_TOPIC_CONFIGS, topic.name)

    def of(self, topic: TopicImage) -> list[dict[str, object]]:
        if self._version < CONFIGS_FROM_VERSION:
            return []
        if topic.view is not None:
            return _config_fields(view_entries(topic))
        key = tuple(topic.overrides.items())
        if key not in self._shown:
            self._shown[key] = _config_fields(topic_entries(topic, self._layers))
        return self._shown[key]


def _config_fields(entries: Iterable[ConfigEntry]) -> list[dict[str, object]]:
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": False,
        }
        for entry in entries
    ]


def _created(topic: TopicImage, shown: _ShownConfigs) -> dict[str, object]:
    refusal = shown.refusal(topic)
    if refusal is not None:
        return {
            "name": topic.name,
            "topic_id": topic.id,
            **error_fields(None),
            "topic_config_error_code": refusal.code,
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": (),
        }
    return {
        "name": topic.name,
        "topic_id": topic.id,
        **error_fields(None),
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": shown.of(topic),
    }


def _refused(name: str, error: RequestError) -> dict[str, object]:
    return {"name": name, "topic_id": None, **error_fields(error), "configs": ()}
