"""CreatePartitions (key 37): add partitions to topics. Existing records stay in their partitions."""

from collections import Counter
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_TOPIC
from respool.broker.outcome import Reply
from respool.model.errors import InvalidRequest, RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

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
            if times_named[topic.name] > 1:
                raise InvalidRequest(f"the topic {topic.name!r} is in the request more than once")
            if not body.validate_only:
                broker.quotas.mutate(
                    request,
                    _growth(broker, topic),
                    strict=request.version >= STRICT_QUOTA_VERSION,
                )
            await _add(broker, topic, validate_only=body.validate_only)
            if not body.validate_only:
                broker.admin_log.log(
                    request, f"grew topic {topic.name!r}: partitions {topic.count}"
                )
        except RequestError as refused:
            error = refused
        results.append({"name": topic.name, **error_fields(error)})
    return [encode_reply(request, {"throttle_time": 0, "results": results})]


def _growth(broker: Broker, topic: Any) -> int:
    found = broker.image.topics.get(topic.name)
    return 0 if found is None else max(0, topic.count - len(found.partitions))


async def _add(broker: Broker, topic: Any, *, validate_only: bool) -> None:
    assignments = topic.assignments
    await broker.topics.add_partitions(
        topic.name,
        partition_count=topic.count,
        assignments=None if assignments is None else [one.broker_ids for one in assignments],
        validate_only=validate_only,
    )
