"""Members of share groups, and tools, as clients see the broker: requests and replies in bytes."""

from typing import Any
from uuid import UUID

from broker.running_broker import RunningBroker
from respool.model.ids import TopicId
from respool.wire.api_table import Api

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_REQUEST = 42
CLUSTER_AUTHORIZATION_FAILED = 31
GROUP = "billing"
SESSION_MS = 45_000


def beat(broker: RunningBroker, member: str, epoch: int, *topics: str, group: str = GROUP) -> Any:
    return broker.ask(
        Api.SHARE_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=topics or None,
    )


def assigned(reply: Any) -> dict[UUID, list[int]]:
    return {one.topic_id: list(one.partitions) for one in reply.assignment.topic_partitions}


def describe(broker: RunningBroker, group: str = GROUP) -> Any:
    (told,) = broker.ask(
        Api.SHARE_GROUP_DESCRIBE, 1, group_ids=[group], include_authorized_operations=False
    ).groups
    return told


def offsets(broker: RunningBroker, *topics: Any, group: str = GROUP, version: int = 1) -> Any:
    asked = {"group_id": group, "topics": list(topics) or None}
    (told,) = broker.ask(Api.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=[asked]).groups
    return told


def alter(broker: RunningBroker, *starts: tuple[int, int], topic: str = "orders") -> Any:
    partitions = [{"partition_index": one, "start_offset": offset} for one, offset in starts]
    topics = [{"topic_name": topic, "partitions": partitions}]
    return broker.ask(Api.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=GROUP, topics=topics)


def topic_id(broker: RunningBroker, name: str = "orders") -> TopicId:
    return broker.broker.image.topics[name].id
