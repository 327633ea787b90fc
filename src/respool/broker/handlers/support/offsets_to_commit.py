"""The offsets of a commit request, with or without a transaction: which can be committed, and the result of each.

A partition that does not exist does not prevent the others from being committed. The newest versions name topics by id:
so an offset of a deleted topic is not committed for a new topic of the same name.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from respool.broker.handlers.support.replies import error_code
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import (
    OffsetCommitReply,
    OffsetToCommit,
    TopicToCommit,
)
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.errors import RequestError, UnknownTopicId, UnknownTopicOrPartition
from respool.model.ids import NO_LEADER_EPOCH, ZERO_TOPIC_ID, TopicId
from respool.wire.codec import Request, encode_reply


class Asked(NamedTuple):
    """A topic of the request, and the existing topic or view that it names, if any."""

    # As in the request, and so in its reply.
    ref: str | UUID
    partitions: tuple[Any, ...]
    topic: TopicImage | None
    # Why the client may not commit offsets of the topic.
    refusal: RequestError | None = None

    @classmethod
    def of(cls, asked: Iterable[Any], image: ClusterImage, *, by_id: bool = False) -> "list[Asked]":
        """`by_id`: the request's version names topics by id."""
        if not by_id:
            return [cls(one.name, one.partitions, image.readable(one.name)) for one in asked]
        found = [(one, TopicId(one.topic_id or ZERO_TOPIC_ID)) for one in asked]
        return [cls(ref, one.partitions, image.readable_by_id(ref)) for one, ref in found]

    def with_refusal(self, refusal_of: Callable[[str], RequestError | None]) -> "Asked":
        """The same with the refusal of its name, if it has one: an unknown id has none."""
        if isinstance(self.ref, str):
            return self._replace(refusal=refusal_of(self.ref))
        return self if self.topic is None else self._replace(refusal=refusal_of(self.topic.name))

    @property
    def code_of_missing(self) -> int:
        """The error code of a partition that does not exist, or to which the client has no right."""
        if self.refusal is not None:
            return self.refusal.code
        is_unknown_id = self.topic is None and isinstance(self.ref, UUID)
        return UnknownTopicId.code if is_unknown_id else UnknownTopicOrPartition.code

    def exists(self, partition: Any) -> bool:
        if self.refusal is not None:
            return False
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
            topics.append(TopicToCommit(one.topic.name, partitions, one.topic.id))
    return tuple(topics)


def _to_commit(partition: Any) -> OffsetToCommit:
    return OffsetToCommit(
        partition.partition_index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", NO_LEADER_EPOCH),
        partition.committed_metadata or "",
    )


def refuse_all(request: Request, asked: Iterable[Asked], refusal: RequestError) -> Reply:
    """The reply to a client that may not commit offsets of the group at all."""
    return encode_codes(request, [one._replace(refusal=refusal) for one in asked], iter(()))


def codes_of(
    topics: Iterable[TopicToCommit], answer: OffsetCommitReply | RequestError
) -> Iterator[int]:
    """Yield the error code of each partition that exists, in request order."""
    if isinstance(answer, RequestError):
        return iter([answer.code for topic in topics for _ in topic.partitions])
    return iter([error_code(one.error) for topic in answer.topics for one in topic.partitions])


def encode_codes(request: Request, asked: Iterable[Asked], codes: Iterator[int]) -> Reply:
    topics = [
        {
            ("name" if isinstance(one.ref, str) else "topic_id"): one.ref,
            "partitions": [
                {
                    "partition_index": each.partition_index,
                    "error_code": next(codes) if one.exists(each) else one.code_of_missing,
                }
                for each in one.partitions
            ],
        }
        for one in asked
    ]
    return [encode_reply(request, {"throttle_time": 0, "topics": topics})]
