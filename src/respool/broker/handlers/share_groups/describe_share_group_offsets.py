"""DescribeShareGroupOffsets (key 90): where share groups begin, and how many records they have before them."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from respool.broker.metrics.remote_ends import RemoteEnds
from respool.broker.outcome import Reply
from respool.coordination.groups.share.share_group_requests import (
    FindShareStates,
    FindShareStatesReply,
)
from respool.coordination.share.share_state import ShareKey
from respool.coordination.share_states.share_state_requests import StateSummary
from respool.model.coordinator_errors import GroupIdNotFound
from respool.model.errors import RequestError
from respool.model.ids import (
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerId,
    Offset,
    TopicId,
    TopicPartition,
)
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

NO_START, NO_LAG = -1, -1


class _AskedTopic(NamedTuple):
    name: str
    topic_id: TopicId
    partitions: tuple[int, ...]


@serves(Api.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def describe_share_group_offsets(request: Request, broker: Broker) -> Reply:
    groups = await asyncio.gather(*(_describe(request, broker, one) for one in request.body.groups))
    return [encode_reply(request, {"throttle_time": 0, "groups": groups})]


async def _describe(request: Request, broker: Broker, asked: Any) -> dict[str, Any]:
    group_id = asked.group_id
    try:
        broker.access.check(request, DESCRIBE_GROUP, group_id)
        reply: FindShareStatesReply = await broker.groups.ask(
            group_id, FindShareStates(group_id=group_id)
        )
    except RequestError as error:
        return {"group_id": group_id, "topics": (), **error_fields(error)}
    if reply.error is not None and not isinstance(reply.error, GroupIdNotFound):
        return {"group_id": group_id, "topics": (), **error_fields(reply.error)}
    # As in Kafka, a group that does not exist has nothing, and that is no error.
    topics = [
        one
        for one in _topics(broker, asked.topics, reply)
        if broker.access.sees(request, DESCRIBE_TOPIC, one.name)
    ]
    keys = [
        ShareKey(group_id, topic.topic_id, number)
        for topic in topics
        for number in topic.partitions
        if number in reply.initialized.get(topic.topic_id, ())
    ]
    summaries = await broker.coordinators.share_states.summarize(keys)
    ends = await _ends(broker, topics)
    return {
        "group_id": group_id,
        "topics": [_topic_fields(group_id, topic, summaries, ends) for topic in topics],
        **error_fields(None),
    }


def _topics(broker: Broker, asked: Any, reply: FindShareStatesReply) -> Iterable[_AskedTopic]:
    """The topics and partitions of the request; all with state, if it names none."""
    image = broker.image
    if asked is None:
        names = {topic.id: topic.name for topic in (*image.topics.values(), *image.views.values())}
        for topic_id, numbers in sorted(reply.initialized.items()):
            if topic_id in names:
                yield _AskedTopic(names[topic_id], topic_id, tuple(sorted(numbers)))
        return
    for topic in asked:
        known = image.readable(topic.topic_name)
        topic_id = ZERO_TOPIC_ID if known is None else known.id
        yield _AskedTopic(topic.topic_name, topic_id, tuple(topic.partitions))


async def _ends(broker: Broker, topics: Iterable[_AskedTopic]) -> dict[TopicPartition, Offset]:
    """The high watermarks of these partitions, as far as their leaders say."""
    ends: dict[TopicPartition, Offset] = {}
    elsewhere: dict[BrokerId, dict[TopicPartition, list[Offset]]] = {}
    image = broker.image
    for topic in topics:
        known = image.readable(topic.name)
        if known is None:
            continue
        parent = known.name if known.view is None else known.view.parent
        for number in topic.partitions:
            name = TopicPartition(parent, number)
            if not image.has_partition(*name):
                continue
            partition = broker.partitions.held(*name)
            leader = image.topics[parent].partitions[number].leader
            if partition is not None and partition.is_leading:
                ends[TopicPartition(topic.name, number)] = partition.high_watermark
            elif leader is not None and broker.link is not None:
                elsewhere.setdefault(leader, {})[TopicPartition(topic.name, number)] = []
    if broker.link is not None and elsewhere:
        remote = RemoteEnds(broker.link)
        for found in await asyncio.gather(
            *(remote.ask(leader, wanted) for leader, wanted in elsewhere.items())
        ):
            ends.update((name, end.high_watermark) for name, end in found.items())
    return ends


def _topic_fields(
    group_id: str,
    topic: _AskedTopic,
    summaries: dict[ShareKey, StateSummary | RequestError],
    ends: dict[TopicPartition, Offset],
) -> dict[str, Any]:
    partitions = []
    for number in topic.partitions:
        summary = summaries.get(ShareKey(group_id, topic.topic_id, number))
        error = None
        if isinstance(summary, RequestError):
            # Deleted since.
            error = None if isinstance(summary, GroupIdNotFound) else summary
            summary = None
        end = ends.get(TopicPartition(topic.name, number))
        partitions.append(
            {
                "partition_index": number,
                "start_offset": NO_START if summary is None else summary.start_offset,
                "leader_epoch": NO_LEADER_EPOCH if summary is None else summary.leader_epoch,
                "lag": _lag(summary, end),
                **error_fields(error),
            }
        )
    return {"topic_name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}


def _lag(summary: StateSummary | None, end: Offset | None) -> int:
    if summary is None or end is None or summary.start_offset < 0 or summary.finished_count < 0:
        return NO_LAG
    return max(0, end - summary.start_offset - summary.finished_count)
