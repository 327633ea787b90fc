"""Metadata (key 3): the brokers, the topics, and the leaders of their partitions.

Clients send this first and often. A request for a topic by name may create it, if the client and the settings allow,
and unless it was deleted a moment ago (`broker/metadata/deleted_topics.py`). A view is shown with its parent's
partitions; a request for all topics shows it only if it is listed, since it has its parent's records.

| version | all topics | none       | topics are named by                                        |
|---------|------------|------------|------------------------------------------------------------|
| 0       | empty list | -          | name                                                       |
| 1 to 11 | null       | empty list | name; 10 and 11 have a field for ids that Kafka never served |
| 12 on   | null       | empty list | name, or id where there is one                             |
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from respool.broker.broker import Broker
from respool.broker.handlers.support.client_errors import why_unknown
from respool.broker.handlers.support.cluster_operations import cluster_operations_of
from respool.broker.handlers.support.leadership import Unreached, leadership, unreached_by
from respool.broker.handlers.support.listener_addresses import reached_brokers
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import (
    CREATE_ON_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_TOPIC,
    NOT_ASKED,
    operations_of,
)
from respool.broker.outcome import Outcome, Reply
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidRequest,
    RequestError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicId
from respool.model.security.acl import AclResource
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.metadata_reply import MetadataBroker, MetadataTopic, encode_metadata_reply

TOPIC_IDS_FROM_VERSION = 12

# The name or id in the request, and the topic found or the error.
Asked: TypeAlias = str | TopicId | None
Answer: TypeAlias = tuple[Asked, TopicImage | RequestError]


@serves(
    Api.METADATA,
    versions=(0, 13),
    rights=(
        DESCRIBE_TOPIC,
        CREATE_ON_CLUSTER.when("it creates a topic") | CREATE_TOPIC.when("it creates a topic"),
    ),
)
def metadata(request: Request, broker: Broker) -> Outcome:
    body = request.body
    if body.topics is None or (request.version == 0 and not body.topics):
        return _reply(
            request,
            broker,
            [
                (one.name, one)
                for one in broker.image.listed()
                if broker.access.sees(request, DESCRIBE_TOPIC, one.name)
            ],
        )
    asked = list(dict.fromkeys(_asked(one, request.version) for one in body.topics))
    may_create = broker.settings.topics.auto_create_topics and getattr(
        body, "allow_auto_topic_creation", True
    )
    if may_create and any(
        isinstance(one, str) and broker.image.readable(one) is None for one in asked
    ):
        return _create_and_reply(request, broker, asked)
    return _reply(request, broker, [(one, _find(request, broker, one)) for one in asked])


async def _create_and_reply(request: Request, broker: Broker, asked: Iterable[Asked]) -> Reply:
    answers = [(one, await _find_or_create(request, broker, one)) for one in asked]
    return _reply(request, broker, answers)


async def _find_or_create(
    request: Request, broker: Broker, asked: Asked
) -> TopicImage | RequestError:
    found = _find(request, broker, asked)
    if not isinstance(found, UnknownTopicOrPartition) or not isinstance(asked, str):
        return found
    if asked in broker.deleted_topics:
        # The client that deleted it may be waiting for this reply.
        return found
    access = broker.access
    if not access.has(request, CREATE_ON_CLUSTER):
        refusal = access.refusal(request, CREATE_TOPIC, asked)
        if refusal is not None:
            return refusal
    try:
        topic, is_new = await broker.topics.create_if_missing(
            asked, on_created=broker.auto_created.on_created
        )
    except RequestError as error:
        return error
    if is_new:
        what = f"created topic {asked!r}: partitions {len(topic.partitions)}, auto_create_topics"
        broker.admin_log.log(request, what)
    return topic


def _asked(topic: Any, version: int) -> Asked:
    topic_id = getattr(topic, "topic_id", None)
    if topic_id is None:
        return topic.name  # type: ignore[no-any-return]
    return TopicId(topic_id) if version >= TOPIC_IDS_FROM_VERSION else None


def _find(request: Request, broker: Broker, asked: Asked) -> TopicImage | RequestError:
    image, access = broker.image, broker.access
    if asked is None:
        return InvalidRequest("a topic is asked for by its name; from version 12 on also by its id")
    if isinstance(asked, str):
        refusal = access.refusal(request, DESCRIBE_TOPIC, asked)
        return refusal or image.readable(asked) or why_unknown(asked)
    found = image.readable_by_id(asked)
    if found is None:
        return UnknownTopicId(f"there is no topic with id {asked}")
    return access.refusal(request, DESCRIBE_TOPIC, found.name) or found


def _reply(request: Request, broker: Broker, answers: Iterable[Answer]) -> Reply:
    image = broker.image
    body = request.body
    are_operations_asked = getattr(body, "include_topic_authorized_operations", False)
    cluster_operations = NOT_ASKED
    if getattr(body, "include_cluster_authorized_operations", False):
        cluster_operations = cluster_operations_of(request, broker)
    unreached = unreached_by(request, image)
    frame = encode_metadata_reply(
        request.correlation_id,
        request.version,
        brokers=[MetadataBroker(*one) for one in reached_brokers(image, request.session)],
        cluster_id=image.cluster_id,
        controller_id=image.controller,
        topics=[
            _metadata_of(
                broker,
                found,
                broker.access.operations(
                    request, AclResource.TOPIC, found.name, having=operations_of(found)
                )
                if are_operations_asked
                else NOT_ASKED,
                unreached,
            )
            if isinstance(found, TopicImage)
            else _refused(asked, found, request.version)
            for asked, found in answers
        ],
        cluster_authorized_operations=cluster_operations,
        throttle_ms=request.throttle_ms,
    )
    return [frame]


def _metadata_of(
    broker: Broker, topic: TopicImage, operations: int, unreached: Unreached
) -> MetadataTopic:
    return MetadataTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=leadership(broker, topic, range(len(topic.partitions)), unreached=unreached),
        authorized_operations=operations,
    )


def _refused(asked: Asked, error: RequestError, version: int) -> MetadataTopic:
    name = asked if isinstance(asked, str) else None
    return MetadataTopic(
        error_code=error.code,
        # Before requests could name ids, the name in a reply was not nullable.
        name="" if name is None and version < TOPIC_IDS_FROM_VERSION else name,
        topic_id=None if isinstance(asked, str) else asked,
        is_internal=False,
        partitions=(),
        authorized_operations=NOT_ASKED,
    )
