"""CreatePartitions (key 37): add partitions to topics. Existing records stay in their partitions.

With `respool.partitions.shrink` of the topic, or if the request says so (`wire/layout_change.py`), also the other way:
partitions are sealed, and records for them go to others (`broker/layouts/`).
"""

from collections import Counter
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.retirement import retire
from respool.broker.handlers.support.rights import ALTER_TOPIC
from respool.broker.outcome import Reply
from respool.model.errors import InvalidReplicaAssignment, InvalidRequest, RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply
from respool.wire.layout_change import LayoutChangeKind

# From this version on clients know that a quota refuses partitions (KIP-599).
STRICT_QUOTA_VERSION = 3


@serves(Api.CREATE_PARTITIONS, versions=(0, 3), rights=(ALTER_TOPIC,))
async def create_partitions(request: Request, broker: Broker) -> Reply:
    body = request.body
    times_named = Counter(topic.name for topic in body.topics)
    results = []
    for topic in {topic.name: topic for topic in body.topics}.values():
        error: RequestError | None = None
        try:
            broker.access.check(request, ALTER_TOPIC, topic.name)
            if getattr(body, "layout_change", "") not in set(LayoutChangeKind):
                raise InvalidRequest(f"there is no change {body.layout_change!r} of partitions")
            if times_named[topic.name] > 1:
                raise InvalidRequest(f"the topic {topic.name!r} is in the request more than once")
            if not body.validate_only:
                broker.quotas.mutate(
                    request,
                    _growth(broker, topic),
                    strict=request.version >= STRICT_QUOTA_VERSION,
                )
            done = await _change(broker, body, topic)
            if not body.validate_only:
                broker.admin_log.log(request, done)
        except RequestError as refused:
            error = refused
        results.append({"name": topic.name, **error_fields(error)})
    return [encode_reply(request, {"throttle_time": 0, "results": results})]


def _growth(broker: Broker, topic: Any) -> int:
    found = broker.image.topics.get(topic.name)
    return 0 if found is None else max(0, topic.count - len(found.partitions))


async def _change(broker: Broker, body: Any, topic: Any) -> str:
    """Change the topic. Return what was done, for the log."""
    kind = LayoutChangeKind(getattr(body, "layout_change", LayoutChangeKind.USUAL))
    validate_only, timeout_s = body.validate_only, body.timeout.total_seconds()
    if kind in (LayoutChangeKind.RETIRE, LayoutChangeKind.RETIRE_FORCED):
        await retire(
            broker,
            topic.name,
            is_forced=kind is LayoutChangeKind.RETIRE_FORCED,
            validate_only=validate_only,
        )
        return f"retired the sealed partitions of topic {topic.name!r}"
    if kind is not LayoutChangeKind.USUAL or _shrinks(broker, topic):
        if topic.assignments is not None:
            raise InvalidReplicaAssignment("a topic that is shrunk gets no replicas to be assigned")
        await broker.topics.shrink(
            topic.name,
            to=topic.count,
            is_unkeyed=kind is LayoutChangeKind.SHRINK_UNKEYED,
            validate_only=validate_only,
            timeout_s=timeout_s,
        )
        return f"shrank topic {topic.name!r}: partitions that take records {topic.count}"
    assignments = topic.assignments
    await broker.topics.add_partitions(
        topic.name,
        partition_count=topic.count,
        assignments=None if assignments is None else [one.broker_ids for one in assignments],
        validate_only=validate_only,
        timeout_s=timeout_s,
    )
    return f"grew topic {topic.name!r}: partitions {topic.count}"


def _shrinks(broker: Broker, topic: Any) -> bool:
    """True if the smaller number is meant: scripts rely on the error that Kafka has for it."""
    found = broker.image.topics.get(topic.name)
    return (
        found is not None
        and found.config.respool_partitions_shrink
        and topic.count < found.active_count
    )
