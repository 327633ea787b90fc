"""Share groups in the form that ShareGroupDescribe returns."""

from respool.coordination.groups.consumer.topics_view import TopicsView, named_partitions
from respool.coordination.groups.share.share_group import ShareGroup, ShareMember
from respool.coordination.groups.share.share_group_requests import (
    DescribedShareGroup,
    DescribedShareMember,
)
from respool.model.coordinator_errors import GroupIdNotFound

SHARE_PROTOCOL_TYPE = "share"
SIMPLE_ASSIGNOR = "simple"


def describe_share_group(
    group_id: str, group: ShareGroup | None, topics: TopicsView
) -> DescribedShareGroup:
    if group is None:
        return DescribedShareGroup(
            group_id=group_id, error=GroupIdNotFound(f"there is no share group {group_id}")
        )

    def described(member: ShareMember) -> DescribedShareMember:
        return DescribedShareMember(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=tuple(sorted(member.topic_names)),
            assignment=named_partitions(member.assigned, topics),
        )

    return DescribedShareGroup(
        group_id=group_id,
        state=group.state,
        epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor=SIMPLE_ASSIGNOR,
        members=tuple(described(member) for member in group.members.values()),
    )
