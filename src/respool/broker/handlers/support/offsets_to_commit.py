"""The offsets of a commit request, with or without a transaction: which can be committed, and the result of each.

A partition that does not exist does not prevent the others from being committed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from respool.broker.handlers.support.replies import error_code
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import (
    OffsetCommitReply,
    OffsetToCommit,
    TopicToCommit,
)
from respool.model.cluster import TopicImage
from respool.model.errors import RequestError, UnknownTopicOrPartition
from respool.model.ids import NO_LEADER_EPOCH
from respool.wire.codec import Request, encode_reply


class Asked(NamedTuple):
    """A topic of the request, and the existing topic that it names, if any."""

    name: str
    partitions: tuple[Any, ...]
    topic: TopicImage | None

    @classmethod
    def of(cls, asked: Iterable[Any], topics: Mapping[str, TopicImage]) -> "list[Asked]":
        return [cls(one.name, one.partitions, topics.get(one.name)) for one in asked]

    def exists(self, partition: Any) -> bool:
        return self.topic is not None and 0 <= partition.partition_index < len(
            self.topic.partitions
        )


def topics_to_commit(asked: Iterable[Asked]) -> tuple[TopicToCommit, ...]:
    """Return the offsets that can be committed: those of partitions that exist."""
    topics = []
    for one in asked:
        partitions = tuple(_to_commit(each) for each in one.partitions if one.exists(each))
        if partitions:
            assert one.topic is not None
            topics.append(TopicToCommit(one.name, partitions, one.topic.id))
    return tuple(topics)


def _to_commit(partition: Any) -> OffsetToCommit:
    return OffsetToCommit(
        partition.partition_index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", NO_LEADER_EPOCH),
        partition.committed_metadata or "",
    )


def codes_of(
    topics: Iterable[TopicToCommit], answer: OffsetCommitReply | RequestError
) -> Iterator[int]:
    """Yield the error code of each partition that exists, in request order."""
    if isinstance(answer, RequestError):
        return iter([answer.code for topic in topics for _ in topic.partitions])
    return iter([error_code(one.error) for topic in answer.topics for one in topic.partitions])


def encode_codes(request: Request, asked: Iterable[Asked], codes: Iterator[int]) -> Reply:
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
