"""ShareGroupDescribe (key 77): share groups with their members and assignments."""

from collections.abc import Iterator, Mapping

from respool.broker.broker import Broker
from respool.broker.handlers.support.described_groups import assignment_fields, describe_groups
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from respool.broker.outcome import Reply
from respool.coordination.groups.share.share_group_requests import (
    DescribedShareGroup,
    ShareGroupDescribe,
)
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(Api.SHARE_GROUP_DESCRIBE, versions=(1, 1), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def share_group_describe(request: Request, broker: Broker) -> Reply:
    return await describe_groups(
        request,
        broker,
        ask=lambda group_ids: ShareGroupDescribe(group_ids=group_ids),
        refuse=lambda group_id, error: DescribedShareGroup(group_id=group_id, error=error),
        topics_of=_topics_of,
        members_of=_members_of,
    )


def _topics_of(group: DescribedShareGroup) -> Iterator[str]:
    for member in group.members:
        yield from member.topic_names
        yield from (one.topic_name for one in member.assignment)


def _members_of(group: DescribedShareGroup) -> list[Mapping[str, object]]:
    return [
        {
            "member_id": member.member_id,
            "rack_id": member.rack_id,
            "member_epoch": member.member_epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": member.topic_names,
            "assignment": assignment_fields(member.assignment),
        }
        for member in group.members
    ]
