"""ConsumerGroupDescribe (key 69): members of KIP-848 groups, with their current and target assignments.

The reply has an entry for every requested group: librdkafka 2.16 terminates its process when one is missing.
"""

from collections.abc import Iterable

from respool.broker.broker import Broker
from respool.broker.handlers.support.coordinator_requests import ask_coordinators
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import (
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    GROUP_OPERATIONS,
    NOT_ASKED,
)
from respool.broker.outcome import Reply
from respool.coordination.groups.consumer.consumer_requests import (
    ConsumerGroupDescribe,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    NamedPartitions,
)
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


@serves(Api.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def consumer_group_describe(request: Request, broker: Broker) -> Reply:
    body = request.body
    groups = await ask_coordinators(
        broker.groups.runtimes,
        body.group_ids,
        name_of=str,
        ask=lambda group_ids: ConsumerGroupDescribe(group_ids=group_ids),
        results_of=lambda answer: answer.groups,
        refuse=lambda group_id, error: DescribedConsumerGroup(group_id=group_id, error=error),
    )
    asks_operations = body.include_authorized_operations
    fields = {
        "throttle_time": 0,
        "groups": [_group_fields(group, asks_operations=asks_operations) for group in groups],
    }
    return [encode_reply(request, fields)]


def _group_fields(group: DescribedConsumerGroup, *, asks_operations: bool) -> dict[str, object]:
    return {
        **error_fields(group.error),
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [_member_fields(member) for member in group.members],
        "authorized_operations": (
            GROUP_OPERATIONS if asks_operations and group.error is None else NOT_ASKED
        ),
    }


def _member_fields(member: DescribedConsumerMember) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "subscribed_topic_regex": member.topic_pattern,
        "assignment": _assignment(member.assignment),
        "target_assignment": _assignment(member.target_assignment),
        "member_type": CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    }


def _assignment(assigned: Iterable[NamedPartitions]) -> dict[str, object]:
    return {
        "topic_partitions": [
            {"topic_id": one.topic_id, "topic_name": one.topic_name, "partitions": one.partitions}
            for one in assigned
        ]
    }
