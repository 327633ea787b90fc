"""OffsetDelete (key 47): delete a group's committed offsets of topics that it no longer subscribes to."""

from collections.abc import Iterator, Mapping

from respool.broker.admin_log import listed, quoted
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import DELETE_GROUP, READ_TOPIC
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import OffsetDelete, OffsetDeleteReply, TopicToFetch
from respool.model.errors import RequestError, UnknownTopicOrPartition
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.OFFSET_DELETE, versions=(0, 0), rights=(DELETE_GROUP, READ_TOPIC))
async def offset_delete(request: Request, broker: Broker) -> Reply:
    body = request.body
    asked = [
        TopicToFetch(topic.name, tuple(one.partition_index for one in topic.partitions))
        for topic in body.topics
    ]
    refusals = {one.topic: broker.access.refusal(request, READ_TOPIC, one.topic) for one in asked}
    known = tuple(
        one
        for one in asked
        if refusals[one.topic] is None and broker.image.readable(one.topic) is not None
    )
    answer = OffsetDeleteReply(error=broker.access.refusal(request, DELETE_GROUP, body.group_id))
    if known and answer.error is None:
        try:
            answer = await broker.groups.ask(
                body.group_id, OffsetDelete(group_id=body.group_id, topics=known)
            )
        except RequestError as error:
            answer = OffsetDeleteReply(error=error)
    deleted = [
        f"{topic.topic}-{one.partition}"
        for topic in answer.topics
        for one in topic.partitions
        if one.error is None
    ]
    if deleted:
        what = f"deleted offsets of group {quoted(body.group_id)}: {listed(deleted)}"
        broker.admin_log.log(request, what)
    fields = {
        "throttle_time": 0,
        "error_code": error_code(answer.error),
        "topics": [] if answer.error else list(_topic_fields(asked, known, answer, refusals)),
    }
    return [encode_reply(request, fields)]


def _topic_fields(
    asked: list[TopicToFetch],
    known: tuple[TopicToFetch, ...],
    answer: OffsetDeleteReply,
    refusals: Mapping[str, RequestError | None],
) -> Iterator[dict[str, object]]:
    answered = iter(answer.topics)
    for topic in asked:
        if topic in known:
            codes = [error_code(one.error) for one in next(answered).partitions]
        else:
            refusal = refusals[topic.topic]
            code = UnknownTopicOrPartition.code if refusal is None else refusal.code
            codes = [code] * len(topic.partitions)
        yield {
            "name": topic.topic,
            "partitions": [
                {"partition_index": number, "error_code": code}
                for number, code in zip(topic.partitions, codes, strict=True)
            ],
        }
