"""DeleteTopics (key 20): topics and views, by name, and from version 6 on also by id.

A topic's views are deleted with it.

A topic that is named twice, even once by name and once by id, is not deleted: the request contradicts itself.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DELETE_ON_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC
from respool.broker.outcome import Reply
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidRequest,
    RequestError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicId
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

# From this version on clients know that a quota refuses a deletion (KIP-599).
STRICT_QUOTA_VERSION = 5


class _TopicReference(NamedTuple):
    """The client's reference to a topic: either its name or its id."""

    name: str | None
    topic_id: TopicId | None


class _Hidden(NamedTuple):
    """A topic that the client may not delete, and whose name it knows."""

    name: str
    refusal: RequestError


@serves(
    Api.DELETE_TOPICS,
    versions=(1, 6),
    rights=(
        DELETE_ON_CLUSTER | DELETE_TOPIC,
        # Otherwise absent topics are refused like existing ones, and those named by id keep their names to themselves.
        DESCRIBE_TOPIC.when("a topic is absent, or named by its id"),
    ),
)
async def delete_topics(request: Request, broker: Broker) -> Reply:
    asked = _asked(request)
    topics = {one: _find(request, broker, one) for one in asked}
    times_named = Counter(asked)
    times_meant = Counter(one.id for one in topics.values() if isinstance(one, TopicImage))
    errors: dict[_TopicReference, RequestError] = {}
    wanted: dict[str, TopicId] = {}
    for one, topic in topics.items():
        if isinstance(topic, RequestError):
            errors[one] = topic
        elif isinstance(topic, _Hidden):
            errors[one] = topic.refusal
        elif times_named[one] > 1 or times_meant[topic.id] > 1:
            why = f"the topic {topic.name!r} is in the request more than once"
            errors[one] = InvalidRequest(why)
        else:
            try:
                broker.quotas.mutate(
                    request,
                    1 if topic.view else len(topic.partitions),
                    strict=request.version >= STRICT_QUOTA_VERSION,
                )
            except RequestError as refused:
                errors[one] = refused
            else:
                wanted[topic.name] = topic.id
    outcomes = await broker.topics.delete_each(wanted)
    results = []
    for one, topic in topics.items():
        error = errors.get(one)
        if error is None and isinstance(topic, TopicImage):
            error = outcomes[topic.name]
            if error is None:
                kind = "topic" if topic.view is None else "view"
                broker.admin_log.log(request, f"deleted {kind} {topic.name!r}")
        results.append({**_reference(one, topic), **error_fields(error)})
    return [encode_reply(request, {"throttle_time": 0, "responses": results})]


def _asked(request: Request) -> list[_TopicReference]:
    names = getattr(request.body, "topic_names", None)
    if names is not None:
        return [_TopicReference(name, None) for name in names]
    return [_TopicReference(one.name, one.topic_id) for one in request.body.topics]


def _find(
    request: Request, broker: Broker, asked: _TopicReference
) -> TopicImage | RequestError | _Hidden:
    found = _look_up(broker, asked)
    access = broker.access
    if not access.is_on or isinstance(found, InvalidRequest | UnknownTopicId):
        return found
    name = found.name if isinstance(found, TopicImage) else asked.name
    assert name is not None
    if access.has(request, DELETE_ON_CLUSTER):
        return found
    refusal = access.refusal(request, DELETE_TOPIC, name)
    if refusal is None:
        return found
    if asked.name is None and not access.sees(request, DESCRIBE_TOPIC, name):
        # The name of a topic that was named by its id stays unknown.
        return refusal
    if not isinstance(found, TopicImage) and access.sees(request, DESCRIBE_TOPIC, name):
        return found
    return _Hidden(name, refusal)


def _look_up(broker: Broker, asked: _TopicReference) -> TopicImage | RequestError:
    name, topic_id = asked
    if (name is None) == (topic_id is None):
        return InvalidRequest(
            "a topic is named by its name or its id, not by "
            + ("neither" if name is None else "both")
        )
    if name is not None:
        return broker.image.readable(name) or UnknownTopicOrPartition(f"there is no topic {name!r}")
    assert topic_id is not None
    return broker.image.readable_by_id(topic_id) or UnknownTopicId(
        f"there is no topic with id {topic_id}"
    )


def _reference(
    asked: _TopicReference, topic: TopicImage | RequestError | _Hidden
) -> Mapping[str, object]:
    """Return the topic's name and id, as far as they are known, and the client may know them."""
    if isinstance(topic, _Hidden):
        return {"name": topic.name, "topic_id": asked.topic_id}
    if isinstance(topic, TopicImage):
        return {"name": topic.name, "topic_id": topic.id}
    return asked._asdict()
