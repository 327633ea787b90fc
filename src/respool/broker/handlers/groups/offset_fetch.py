"""OffsetFetch (key 9): the committed offsets of groups; of several groups at once from version 8 on (KIP-709).

Version 10 names topics by id. An offset that was committed for a deleted topic is not returned for a new topic of the
same name, in any version; only version 10 can tell a client that still has the old id.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinators
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_code
from respool.broker.handlers.support.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from respool.broker.outcome import Reply
from respool.coordination.groups.group_requests import (
    NO_GENERATION,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetFetch,
    TopicToFetch,
)
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.coordinator_errors import CoordinatorNotAvailable, NotCoordinator
from respool.model.errors import RequestError, UnknownTopicId
from respool.model.ids import ZERO_TOPIC_ID
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

# None: all that the group has committed.
TopicsToFetch: TypeAlias = tuple[TopicToFetch, ...] | None

SEVERAL_GROUPS_VERSION = 8
TOPIC_IDS_VERSION = 10


@serves(Api.OFFSET_FETCH, versions=(1, 10), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def offset_fetch(request: Request, broker: Broker) -> Reply:
    body = request.body
    require_stable = getattr(body, "require_stable", False)
    asked = body.groups if request.version >= SEVERAL_GROUPS_VERSION else (body,)
    access = broker.access
    # librdkafka does not retry: a consumer with assign() would get an error once, and then no message.
    await broker.groups.runtimes.wait_until_served(
        {group.group_id for group in asked if access.sees(request, DESCRIBE_GROUP, group.group_id)}
    )
    by_id = request.version >= TOPIC_IDS_VERSION
    # As they are now: while a coordinator answers, a topic may be recreated.
    image = broker.image
    names_of = _names_by_id if by_id else _names
    questions = [_question(group, names_of(group.topics, image)) for group in asked]
    groups = await ask_coordinators(
        broker.groups.runtimes,
        questions,
        name_of=lambda group: group.group_id,
        ask=lambda share: OffsetFetch(groups=share, require_stable=require_stable),
        results_of=lambda answer: answer.groups,
        refuse=_refused,
        check=partial(access.check, request, DESCRIBE_GROUP),
    )
    if access.is_on:
        refusal_of = partial(access.refusal, request, DESCRIBE_TOPIC)
        sees = partial(access.sees, request, DESCRIBE_TOPIC)
        groups = [
            _as_shown(each, question, refusal_of if question.topics is not None else sees)
            for each, question in zip(groups, questions, strict=True)
        ]
    fields: dict[str, Any]
    if by_id:
        fields = {
            "groups": [
                {
                    "group_id": group.group_id,
                    "error_code": error_code(group.error),
                    "topics": list(_topics_by_id(each.topics, group, image)),
                }
                for each, group in zip(asked, groups, strict=True)
            ]
        }
    elif request.version >= SEVERAL_GROUPS_VERSION:
        fields = {
            "groups": [
                {"group_id": group.group_id, **_group_fields(group, image)} for group in groups
            ]
        }
    else:
        # Version 1 has no group-level error field, so every partition carries the error. Later versions have one, but
        # aiokafka reads only the partitions': it would mistake an error for "nothing committed" and begin at the end.
        fields = _group_fields(_with_error_everywhere(questions[0], groups[0]), image)
    return [encode_reply(request, {"throttle_time": 0, **fields})]


def _as_shown(
    group: FetchedGroup,
    asked: GroupToFetch,
    refusal_of: Callable[[str], RequestError | bool | None],
) -> FetchedGroup:
    """The offsets that the client may see: of other topics an error, or nothing if it asked for all."""
    shown = []
    for topic in group.topics:
        refusal = refusal_of(topic.topic)
        if refusal is True or refusal is None:
            shown.append(topic)
        elif asked.topics is not None:
            assert isinstance(refusal, RequestError)
            hidden = [FetchedOffset(one.partition, error=refusal) for one in topic.partitions]
            shown.append(topic._replace(partitions=tuple(hidden)))
    return group._replace(topics=tuple(shown))


def _names(topics: Iterable[Any] | None, _image: ClusterImage) -> TopicsToFetch:
    # From version 2 on, null requests all offsets.
    if topics is None:
        return None
    return tuple(TopicToFetch(topic.name, topic.partition_indexes) for topic in topics)


def _names_by_id(topics: Iterable[Any] | None, image: ClusterImage) -> TopicsToFetch:
    """The topics that exist; the reply reports the others, see `_topics_by_id`."""
    if topics is None:
        return None
    found = ((image.readable_by_id(topic.topic_id), topic) for topic in topics)
    return tuple(
        TopicToFetch(known.name, topic.partition_indexes) for known, topic in found if known
    )


def _question(group: Any, topics: TopicsToFetch) -> GroupToFetch:
    return GroupToFetch(
        group.group_id,
        topics,
        getattr(group, "member_id", None),
        getattr(group, "member_epoch", NO_GENERATION),
    )


def _refused(group: GroupToFetch, error: RequestError) -> FetchedGroup:
    if isinstance(error, CoordinatorNotAvailable):
        # Here clients treat COORDINATOR_NOT_AVAILABLE as fatal; for NOT_COORDINATOR they look up the coordinator again.
        error = NotCoordinator(error.message)
    return FetchedGroup(group.group_id, (), error)


def _group_fields(group: FetchedGroup, image: ClusterImage) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic.topic,
                "partitions": _partitions(_of_this_topic(topic, image.readable(topic.topic))),
            }
            for topic in group.topics
        ],
        "error_code": error_code(group.error),
    }


def _topics_by_id(
    asked: Iterable[Any] | None, group: FetchedGroup, image: ClusterImage
) -> Iterator[dict[str, Any]]:
    if group.error is not None:
        return
    if asked is None:
        # All that the group has committed; a topic that was deleted since has no id here.
        for found in group.topics:
            if (topic := image.readable(found.topic)) is not None:
                yield _topic_fields(topic.id, _of_this_topic(found, topic))
        return
    fetched = iter(group.topics)
    for one in asked:
        if (topic := image.readable_by_id(one.topic_id)) is not None:
            yield _topic_fields(topic.id, _of_this_topic(next(fetched), topic))
        else:
            error = UnknownTopicId(f"there is no topic with id {one.topic_id}")
            unknown = [FetchedOffset(number, error=error) for number in one.partition_indexes]
            yield _topic_fields(one.topic_id, unknown)


def _topic_fields(topic_id: UUID | None, partitions: Iterable[FetchedOffset]) -> dict[str, Any]:
    return {"topic_id": topic_id, "partitions": _partitions(partitions)}


def _partitions(fetched: Iterable[FetchedOffset]) -> list[dict[str, Any]]:
    return [
        {
            "partition_index": one.partition,
            "committed_offset": one.offset,
            "committed_leader_epoch": one.leader_epoch,
            "metadata": one.metadata,
            "error_code": error_code(one.error),
        }
        for one in fetched
    ]


def _of_this_topic(fetched: FetchedTopic, topic: TopicImage | None) -> tuple[FetchedOffset, ...]:
    """Drop offsets that were committed for a deleted topic of the same name: its topic id differs."""
    if topic is None:
        return fetched.partitions
    ids = (topic.id, ZERO_TOPIC_ID)
    return tuple(
        one if one.topic_id in ids else FetchedOffset(one.partition, error=one.error)
        for one in fetched.partitions
    )


def _with_error_everywhere(asked: GroupToFetch, found: FetchedGroup) -> FetchedGroup:
    if found.error is None:
        return found
    topics = (
        FetchedTopic(
            topic.topic,
            tuple(FetchedOffset(number, error=found.error) for number in topic.partitions),
        )
        for topic in asked.topics or ()
    )
    return FetchedGroup(found.group_id, tuple(topics), found.error)
