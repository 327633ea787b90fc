"""Converts a classic group to a next-generation one when such a member joins, and back when only classic ones remain.

The upgrade is immediate: members keep their partitions, and rejoin after their next heartbeat. The downgrade waits
until only classic members are left and all have their target assignment: then a classic group with the same
generation, members and assignments is equivalent, so no member notices and a failover loses nothing. (Kafka
downgrades as soon as the last member of the new protocol leaves, and starts a rebalance.)
"""

from dataclasses import replace

from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.classic.classic_member import ClassicMember
from respool.coordination.groups.consumer.consumer_draft import ConsumerDraft, end_of_group
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import (
    ClassicDetails,
    ConsumerMember,
    MemberState,
)
from respool.coordination.groups.consumer.consumer_records import (
    ConsumerRecordKind,
    GroupValue,
    TargetEpochValue,
    TargetValue,
)
from respool.coordination.groups.consumer.partition_sets import PartitionSet, difference
from respool.coordination.groups.consumer.topics_view import TopicsView, with_ids, with_names
from respool.coordination.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
)
from respool.coordination.groups.group_records import (
    StoredGroup,
    StoredMember,
    write_group_key,
    write_group_value,
)
from respool.coordination.groups.group_requests import GroupState
from respool.model.coordinator_errors import GroupIdNotFound, InconsistentGroupProtocol
from respool.model.coordinator_settings import GroupSettings

_UPGRADES = frozenset({"upgrade", "bidirectional"})
_DOWNGRADES = frozenset({"downgrade", "bidirectional"})


def upgraded(
    classic: ClassicGroup, *, topics: TopicsView, settings: GroupSettings
) -> ConsumerDraft:
    """The classic group as a consumer group, with the records that convert it.

    Raises:
        GroupIdNotFound: it cannot be converted; for members of the new protocol, it does not exist.
    """
    _check_upgrade(classic, settings)
    change = ConsumerDraft(ConsumerGroup(classic.group_id))
    change.write_other(write_group_key(classic.group_id), None)
    try:
        members = [_to_consumer(member, classic, topics) for member in classic.members.values()]
    except InconsistentGroupProtocol as error:
        raise GroupIdNotFound(
            f"group {classic.group_id} cannot go over to the consumer protocol: {error}"
        ) from None
    for member in members:
        change.put_member(member)
    # A new epoch: the last assignment may date from before a topic got more partitions, or there is none yet.
    epoch = classic.generation + 1
    hashed = change.group.hash_of_topics(topics)
    change.put(ConsumerRecordKind.GROUP, GroupValue(epoch, hashed))
    for member in members:
        # A client-side assignor may have assigned a partition to two members. Here it can have only one owner.
        assigned = _without_others(member.assigned, member.member_id, change.group)
        change.put(ConsumerRecordKind.TARGET, TargetValue(assigned), member.member_id)
        change.put_current(replace(member, assigned=assigned, revoking={}))
    for member in members:
        # After all assignments: a partition to revoke counts only if no other member owns it.
        revoking = _without_others(member.revoking, member.member_id, change.group)
        if revoking:
            current = change.group.members[member.member_id]
            change.put_current(replace(current, state=MemberState.UNREVOKED, revoking=revoking))
    change.put(ConsumerRecordKind.TARGET_EPOCH, TargetEpochValue(classic.generation))
    return change


def replacing_empty(classic: ClassicGroup) -> ConsumerDraft:
    """A new consumer group that replaces a classic one without members."""
    change = ConsumerDraft(ConsumerGroup(classic.group_id))
    change.write_other(write_group_key(classic.group_id), None)
    return change


def may_downgrade(group: ConsumerGroup, settings: GroupSettings) -> bool:
    return (
        all(member.classic is not None for member in group.members.values())
        and group.state is GroupState.STABLE
        and len(group.members) <= settings.group_max_size
        and settings.group_consumer_migration_policy in _DOWNGRADES
    )


def downgrade(change: ConsumerDraft, *, topics: TopicsView, wall_ms: int) -> None:
    """Convert a group that `may_downgrade` to a classic one."""
    group = change.group
    classic = ClassicGroup(group.group_id)
    for member in group.members.values():
        classic.add(_to_classic(member))
    protocol_name = classic.choose_protocol()
    stored = StoredGroup(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol_name=protocol_name,
        leader=classic.leader,
        since_ms=wall_ms,
        members=tuple(
            _to_stored(member, group, protocol_name, topics) for member in classic.members.values()
        ),
    )
    change.end(list(end_of_group(group)))
    change.write_other(write_group_key(group.group_id), write_group_value(stored))


def _check_upgrade(classic: ClassicGroup, settings: GroupSettings) -> None:
    why = None
    if settings.group_consumer_migration_policy not in _UPGRADES:
        why = f"the migration policy is {settings.group_consumer_migration_policy}"
    elif not classic.uses_consumer_protocol:
        why = f"its protocol type is {classic.protocol_type!r}"
    elif len(classic.members) > settings.group_consumer_max_size:
        why = f"it has {len(classic.members)} members, limit {settings.group_consumer_max_size}"
    if why is not None:
        raise GroupIdNotFound(f"group {classic.group_id} is a classic group and stays one: {why}")


def _to_consumer(
    member: ClassicMember, classic: ClassicGroup, topics: TopicsView
) -> ConsumerMember:
    subscription = read_subscription(member.protocols[0].metadata)
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise InconsistentGroupProtocol(
            f"the assignor of member {member.member_id} adds data that would be lost"
        )
    assigned = with_ids(assignment.partitions, topics)
    # A cooperative member revokes the partitions that it owned and was not assigned again, and confirms by rejoining.
    # Until then it is unknown whether it has received its assignment.
    revoking = difference(with_ids(subscription.owned, topics), assigned)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicDetails(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=assigned,
        revoking=revoking,
    )


def _without_others(partitions: PartitionSet, member_id: str, group: ConsumerGroup) -> PartitionSet:
    return difference(partitions, group.held_by_others(member_id, partitions))


def _to_classic(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.classic.protocols,
    )


def _to_stored(
    member: ClassicMember, group: ConsumerGroup, protocol_name: str, topics: TopicsView
) -> StoredMember:
    version = read_subscription(member.metadata_for(protocol_name)).version
    assigned = with_names(group.members[member.member_id].assigned, topics)
    return member.to_stored(
        protocol_name=protocol_name, assignment=write_assignment(assigned, version=version)
    )
