"""ConsumerGroupDescribe (key 69): members of KIP-848 groups, with their current and target assignments.

The reply has an entry for every requested group: librdkafka 2.16 terminates its process when one is missing.
"""

from collections.abc import Iterator, Mapping

from respool.broker.broker import Broker
from respool.broker.handlers.support.described_groups import assignment_fields, describe_groups
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from respool.broker.outcome import Reply
from respool.coordination.groups.consumer.consumer_requests import (
    ConsumerGroupDescribe,
    DescribedConsumerGroup,
)
from respool.wire.api_table import Api
from respool.wire.codec import Request

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


@serves(Api.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def consumer_group_describe(request: Request, broker: Broker) -> Reply:
    return await describe_groups(
        request,
        broker,
        ask=lambda group_ids: ConsumerGroupDescribe(group_ids=group_ids),
        refuse=lambda group_id, error: DescribedConsumerGroup(group_id=group_id, error=error),
        topics_of=_topics_of,
        members_of=_members_of,
    )


def _topics_of(group: DescribedConsumerGroup) -> Iterator[str]:
    for member in group.members:
        yield from member.topic_names
        yield from (one.topic_name for one in member.assignment)
        yield from (one.topic_name for one in member.target_assignment)


def _members_of(group: DescribedConsumerGroup) -> list[Mapping[str, object]]:
    return [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "member_epoch": member.member_epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": member.topic_names,
            "subscribed_topic_regex": member.topic_pattern,
            "assignment": assignment_fields(member.assignment),
            "target_assignment": assignment_fields(member.target_assignment),
            "member_type": CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
        }
        for member in group.members
    ]
