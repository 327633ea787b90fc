"""CreateTopics (key 19): each topic on its own; one that cannot be created does not keep the others from it."""

from collections import Counter
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.config_entries import topic_entries
from respool.broker.handlers.error_fields import error_fields
from respool.broker.outcome import Reply
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidRequest,
    RequestError,
)
from respool.wire.codec import Request, encode_reply

USE_DEFAULT = -1


async def create_topics(request: Request, broker: Broker) -> Reply:
    body = request.body
    times_named = Counter(topic.name for topic in body.topics)
    results = []
    for topic in {topic.name: topic for topic in body.topics}.values():
        try:
            if times_named[topic.name] > 1:
                raise InvalidRequest(f"the topic {topic.name!r} is in the request more than once")
            image = await _create(broker, topic, validate_only=body.validate_only)
        except RequestError as error:
            results.append(_refused(topic.name, error))
        else:
            results.append(_created(broker, image))
    return [encode_reply(request, {"throttle_time": 0, "topics": results})]


async def _create(broker: Broker, topic: Any, *, validate_only: bool) -> TopicImage:
    return await broker.topics.create(
        topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        overrides=_overrides(topic),
        assignment=_assignment(topic),
        validate_only=validate_only,
    )


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


def _created(broker: Broker, topic: TopicImage) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        **error_fields(None),
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": entry.source,
                "is_sensitive": False,
            }
            for entry in topic_entries(topic, broker.settings)
        ],
    }


def _refused(name: str, error: RequestError) -> dict[str, object]:
    return {"name": name, "topic_id": None, **error_fields(error), "configs": ()}
