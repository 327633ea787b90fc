"""OffsetCommit (key 8): how far a group has read.

A partition that is not there does not keep the others from being committed.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from respool.broker.broker import Broker
from respool.broker.handlers.error_fields import error_code
from respool.broker.handlers.when_answered import reply_when_answered
from respool.broker.outcome import Outcome, Reply
from respool.coordination.requests import (
    RETENTION_BY_BROKER,
    OffsetCommit,
    OffsetCommitReply,
    OffsetToCommit,
    TopicToCommit,
)
from respool.model.cluster import TopicImage
from respool.model.errors import RequestError, UnknownTopicOrPartition
from respool.model.ids import NO_LEADER_EPOCH
from respool.wire.codec import Request, encode_reply
from respool.wire.shape import milliseconds

MEMBER_EPOCHS_VERSION = 9


class _Asked(NamedTuple):
    """A topic of the request, and the topic it means, if there is one."""

    name: str
    partitions: tuple[Any, ...]
    topic: TopicImage | None

    def exists(self, partition: Any) -> bool:
        return self.topic is not None and 0 <= partition.partition_index < len(
            self.topic.partitions
        )


def offset_commit(request: Request, broker: Broker) -> Outcome:
    topics = broker.image.topics
    asked = [_Asked(one.name, one.partitions, topics.get(one.name)) for one in request.body.topics]
    question = _question(request, asked)

    def encode(answer: OffsetCommitReply | RequestError) -> Reply:
        return _reply(request, asked, _codes(question, answer))

    if not question.topics:
        return _reply(request, asked, iter(()))
    return reply_when_answered(broker.groups.shards, question.group_id, question, encode)


def _question(request: Request, asked: Iterable[_Asked]) -> OffsetCommit:
    body = request.body
    retention = getattr(body, "retention_time", None)
    topics = []
    for one in asked:
        partitions = tuple(_to_commit(each) for each in one.partitions if one.exists(each))
        if partitions:
            assert one.topic is not None
            topics.append(TopicToCommit(one.name, partitions, one.topic.id))
    return OffsetCommit(
        group_id=body.group_id,
        generation=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        topics=tuple(topics),
        retention_ms=RETENTION_BY_BROKER if retention is None else milliseconds(retention),
        knows_member_epochs=request.version >= MEMBER_EPOCHS_VERSION,
    )


def _to_commit(partition: Any) -> OffsetToCommit:
    return OffsetToCommit(
        partition.partition_index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", NO_LEADER_EPOCH),
        partition.committed_metadata or "",
    )


def _codes(question: OffsetCommit, answer: OffsetCommitReply | RequestError) -> Iterator[int]:
    """What became of each partition that exists, in the order asked."""
    if isinstance(answer, RequestError):
        return iter([answer.code for topic in question.topics for _ in topic.partitions])
    return iter([error_code(one.error) for topic in answer.topics for one in topic.partitions])


def _reply(request: Request, asked: Iterable[_Asked], codes: Iterator[int]) -> Reply:
    unknown = UnknownTopicOrPartition.code
    topics = [
        {
            "name": one.name,
            "partitions": [
                {
                    "partition_index": each.partition_index,
                    "error_code": next(codes) if one.exists(each) else unknown,
                }
                for each in one.partitions
            ],
        }
        for one in asked
    ]
    return [encode_reply(request, {"throttle_time": 0, "topics": topics})]
