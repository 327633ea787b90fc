"""Administrative requests: list, describe, delete and fence groups."""

from respool.coordination.draft import Draft
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.classic.classic_groups import ClassicGroups, check_group_id
from respool.coordination.groups.committed_offsets import CommittedOffsets
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_groups import ConsumerGroups
from respool.coordination.groups.consumer.consumer_member import ConsumerMember
from respool.coordination.groups.consumer.consumer_requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeReply,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS
from respool.coordination.groups.consumer.topics_view import TopicsView, named_partitions
from respool.coordination.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from respool.coordination.groups.group_records import write_group_key
from respool.coordination.groups.group_requests import (
    DeleteGroups,
    DeleteGroupsReply,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    DescribeGroupsReply,
    FenceGroup,
    FenceGroupReply,
    GroupResult,
    GroupState,
    GroupType,
    ListedGroup,
    ListGroups,
    ListGroupsReply,
    TopicResult,
)
from respool.coordination.groups.share.share_descriptions import (
    SHARE_PROTOCOL_TYPE,
    describe_share_group,
)
from respool.coordination.groups.share.share_group_requests import (
    FindShareStates,
    FindShareStatesReply,
    ShareGroupDescribe,
    ShareGroupDescribeReply,
)
from respool.coordination.groups.share.share_groups import ShareGroups
from respool.model.coordinator_errors import GroupIdNotFound, NonEmptyGroup
from respool.model.errors import RequestError


class GroupAdmin:
    def __init__(
        self,
        *,
        offsets: CommittedOffsets,
        classic: ClassicGroups,
        consumers: ConsumerGroups,
        shares: ShareGroups,
    ) -> None:
        self._offsets = offsets
        self._classic = classic
        self._consumers = consumers
        self._shares = shares

    def list(self, request: ListGroups) -> ListGroupsReply:
        """List the groups that match the filters; a group that only has offsets is Empty."""
        states = {state.strip().lower() for state in request.states}
        types = {group_type.strip().lower() for group_type in request.types}
        groups = self._classic.groups
        listed = [
            ListedGroup(group_id, group.protocol_type, group.state, GroupType.CLASSIC)
            for group_id, group in groups.items()
        ]
        listed += (
            ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, group.state, GroupType.CONSUMER)
            for group_id, group in self._consumers.groups.items()
        )
        listed += (
            ListedGroup(group_id, SHARE_PROTOCOL_TYPE, group.state, GroupType.SHARE)
            for group_id, group in self._shares.groups.items()
        )
        listed += (
            ListedGroup(group_id, "", GroupState.EMPTY, GroupType.CLASSIC)
            for group_id in self._offsets.group_ids()
            if group_id not in groups and group_id not in self._consumers.groups
        )
        return ListGroupsReply(
            groups=tuple(
                one
                for one in listed
                if (not states or one.state.lower() in states)
                and (not types or one.type.lower() in types)
            )
        )

    def describe(self, request: DescribeGroups) -> DescribeGroupsReply:
        return DescribeGroupsReply(
            groups=tuple(self._describe_one(group_id) for group_id in request.group_ids)
        )

    def _describe_one(self, group_id: str) -> DescribedGroup:
        group = self._classic.groups.get(group_id)
        if group is not None:
            return _described(group)
        if group_id in self._consumers.groups or group_id in self._shares.groups:
            # Clients that get this error retry with ConsumerGroupDescribe.
            error = GroupIdNotFound(f"group {group_id} is not a classic group")
            return DescribedGroup(group_id=group_id, error=error)
        if self._offsets.has_group(group_id):
            return DescribedGroup(group_id=group_id, state=GroupState.EMPTY)
        return DescribedGroup(group_id=group_id, error=_missing(group_id))

    def describe_consumers(self, request: ConsumerGroupDescribe) -> ConsumerGroupDescribeReply:
        groups = self._consumers.groups
        return ConsumerGroupDescribeReply(
            groups=tuple(
                describe_consumer_group(group_id, groups.get(group_id), self._consumers.topics)
                for group_id in request.group_ids
            )
        )

    def describe_shares(self, request: ShareGroupDescribe) -> ShareGroupDescribeReply:
        groups = self._shares.groups
        return ShareGroupDescribeReply(
            groups=tuple(
                describe_share_group(group_id, groups.get(group_id), self._shares.topics)
                for group_id in request.group_ids
            )
        )

    def find_share_states(self, request: FindShareStates) -> FindShareStatesReply:
        group = self._shares.groups.get(request.group_id)
        if group is None:
            error = GroupIdNotFound(f"there is no share group {request.group_id}")
            return FindShareStatesReply(error=error)
        return FindShareStatesReply(initialized=group.states.initialized)

    def delete(self, request: DeleteGroups, draft: Draft) -> DeleteGroupsReply:
        results = []
        for group_id in dict.fromkeys(request.group_ids):
            error: RequestError | None = None
            try:
                self._delete_one(group_id, draft)
            except RequestError as refusal:
                error = refusal
            results.append(GroupResult(group_id, error))
        return DeleteGroupsReply(groups=tuple(results))

    def _delete_one(self, group_id: str, draft: Draft) -> None:
        group = self._classic.groups.get(group_id)
        consumer = self._consumers.groups.get(group_id)
        if group is None and consumer is None and not self._offsets.has_group(group_id):
            raise _missing(group_id)
        if consumer is not None and consumer.members:
            raise NonEmptyGroup(f"group {group_id} has {len(consumer.members)} members")
        if group is not None and group.state is not GroupState.EMPTY:
            raise NonEmptyGroup(f"group {group_id} has {len(group.members)} members")
        self._offsets.delete_all(group_id, draft=draft)
        if consumer is not None:
            self._consumers.delete(group_id, draft)
        if group is not None and group.stored is not None:
            draft.write(write_group_key(group_id), None)

    def fence(self, request: FenceGroup, draft: Draft) -> FenceGroupReply:
        """Remove all members and set offsets in one batch, so that no commit can come in between."""
        try:
            check_group_id(request.group_id)
            if request.group_id in self._shares.groups:
                raise GroupIdNotFound(f"group {request.group_id} is a share group")
            topics = self._offsets.commit(request.group_id, request.topics, draft=draft)
            _raise_first_error(topics)
        except RequestError as error:
            draft.discard_records()
            return FenceGroupReply(error=error)
        fenced = self._classic.remove_all(request.group_id, draft)
        if request.group_id in self._consumers.groups:
            fenced = self._consumers.remove_all(request.group_id, draft)
        return FenceGroupReply(fenced_member_ids=fenced, topics=topics)


def _described(group: ClassicGroup) -> DescribedGroup:
    # During a rebalance only the leader knows the assignment.
    name = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type,
        protocol_name=name or "",
        members=tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                b"" if name is None else member.metadata_for(name),
                b"" if name is None else member.assignment,
            )
            for member in group.members.values()
        ),
    )


def _missing(group_id: str) -> GroupIdNotFound:
    return GroupIdNotFound(f"there is no group {group_id}")


def _raise_first_error(topics: tuple[TopicResult, ...]) -> None:
    for topic in topics:
        for partition in topic.partitions:
            if partition.error is not None:
                raise partition.error


# -- ConsumerGroupDescribe ---------------------------------------------------------------------------------------------
# Consumer groups in the form that ConsumerGroupDescribe returns.


def describe_consumer_group(
    group_id: str, group: ConsumerGroup | None, topics: TopicsView
) -> DescribedConsumerGroup:
    if group is None:
        return DescribedConsumerGroup(
            group_id=group_id, error=GroupIdNotFound(f"there is no consumer group {group_id}")
        )

    def described(member: ConsumerMember) -> DescribedConsumerMember:
        return DescribedConsumerMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=tuple(sorted(member.topic_names)),
            topic_pattern=member.topic_pattern,
            assignment=named_partitions(member.assigned, topics),
            target_assignment=named_partitions(
                group.targets.get(member.member_id, NO_PARTITIONS), topics
            ),
            is_classic=member.classic is not None,
        )

    return DescribedConsumerGroup(
        group_id=group_id,
        state=group.state,
        epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor=group.assignor,
        members=tuple(described(member) for member in group.members.values()),
    )
