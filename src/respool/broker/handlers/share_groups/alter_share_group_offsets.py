"""AlterShareGroupOffsets (key 91): let an empty share group begin elsewhere; creates the group if there is none."""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import READ_GROUP, READ_TOPIC
from respool.broker.outcome import Reply
from respool.coordination.groups.share.share_group_requests import (
    AlterShareStarts,
    ShareStart,
    ShareStatesChanged,
)
from respool.coordination.share.share_state import UNDECIDED_START
from respool.model.errors import InvalidRequest, RequestError, UnknownTopicOrPartition
from respool.model.ids import ZERO_TOPIC_ID, Offset, TopicId
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0), rights=(READ_GROUP, READ_TOPIC))
async def alter_share_group_offsets(request: Request, broker: Broker) -> Reply:
    body = request.body
    refused: dict[tuple[str, int], RequestError] = {}
    starts: dict[tuple[TopicId, int], ShareStart] = {}
    ids = {one.topic_name: _topic_id(broker, one.topic_name) for one in body.topics}
    for topic in body.topics:
        for one in topic.partitions:
            name = (topic.topic_name, one.partition_index)
            topic_id = ids[topic.topic_name]
            if (topic_id, one.partition_index) in starts:
                refused[name] = InvalidRequest("the partition is named twice")
                continue
            error = broker.access.refusal(request, READ_TOPIC, topic.topic_name) or _problem(
                broker, topic.topic_name, one
            )
            if error is not None:
                refused[name] = error
            else:
                start = ShareStart(topic_id, one.partition_index, Offset(one.start_offset))
                starts[topic_id, one.partition_index] = start
    reply = ShareStatesChanged()
    try:
        broker.access.check(request, READ_GROUP, body.group_id)
        if starts:
            reply = await broker.groups.ask(
                body.group_id,
                AlterShareStarts(group_id=body.group_id, starts=tuple(starts.values())),
            )
    except RequestError as error:
        reply = ShareStatesChanged(error=error)
    if reply.error is None and starts:
        broker.admin_log.log(request, f"altered offsets of share group {body.group_id!r}")

    def result(topic: Any, number: int) -> dict[str, Any]:
        error = refused.get((topic.topic_name, number))
        if error is None and number not in reply.changed.get(ids[topic.topic_name], ()):
            error = reply.error
        return {"partition_index": number, **error_fields(error)}

    # An error of some partitions is in their results; one of the group as a whole is in the reply itself.
    of_group = reply.error if not reply.changed else None
    fields = {
        "throttle_time": 0,
        **error_fields(of_group),
        "responses": []
        if of_group is not None
        else [
            {
                "topic_name": topic.topic_name,
                "topic_id": ids[topic.topic_name],
                "partitions": [result(topic, one.partition_index) for one in topic.partitions],
            }
            for topic in body.topics
        ],
    }
    return [encode_reply(request, fields)]


def _topic_id(broker: Broker, name: str) -> TopicId:
    topic = broker.image.readable(name)
    return ZERO_TOPIC_ID if topic is None else topic.id


def _problem(broker: Broker, topic_name: str, asked: Any) -> RequestError | None:
    topic = broker.image.readable(topic_name)
    if topic is None or not 0 <= asked.partition_index < len(topic.partitions):
        return UnknownTopicOrPartition(
            f"there is no partition {asked.partition_index} of topic {topic_name}"
        )
    if asked.start_offset < UNDECIDED_START:
        return InvalidRequest(f"{asked.start_offset} is not an offset")
    return None
