"""A next-generation consumer group (KIP-848): its state in the log, which changes only by `replay`.

Three epochs follow each other. A change of members, subscriptions or topics bumps the group epoch; a new target
assignment takes that epoch; and each member takes the target's epoch once it has revoked all partitions that it must:

```
  member's epoch  <=  target's epoch  <=  group's epoch
       Reconciling          Assigning                       all three equal, every member STABLE: Stable
```
(A static member that has left temporarily has epoch -2.)
"""

from collections import Counter
from dataclasses import replace
from hashlib import blake2b

from respool.coordination.groups.consumer.assignors import ASSIGNORS
from respool.coordination.groups.consumer.consumer_member import (
    LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
)
from respool.coordination.groups.consumer.consumer_records import (
    ConsumerRecordKey,
    ConsumerRecordKind,
    ConsumerRecordValue,
    CurrentValue,
    GroupValue,
    MemberValue,
    PatternValue,
    TargetEpochValue,
    TargetValue,
)
from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, PartitionSet
from respool.coordination.groups.consumer.topics_view import TopicsView
from respool.coordination.groups.group_requests import (
    NO_MEMBER_ID,
    GroupState,
    GroupToFetch,
    OffsetCommit,
    TxnOffsetCommit,
)
from respool.model.coordinator_errors import (
    FencedInstanceId,
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMemberId,
)
from respool.model.errors import UnsupportedVersion
from respool.model.ids import NO_TIMESTAMP, TopicId

DEFAULT_ASSIGNOR = next(iter(ASSIGNORS))


class ConsumerGroup:
    __slots__ = (
        "_owners",
        "empty_since_ms",
        "epoch",
        "group_id",
        "has_topics_record",
        "members",
        "metadata_hash",
        "resolved",
        "static_members",
        "target_epoch",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.empty_since_ms = NO_TIMESTAMP
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        # Instance id -> member id.
        self.static_members: dict[str, str] = {}
        # The target assignment of each member.
        self.targets: dict[str, PartitionSet] = {}
        # The topics that each pattern matched when topics were last created or deleted.
        self.resolved: dict[str, frozenset[str]] = {}
        # Kafka before 4.1 wrote this record. It is unused, but deleted with the group.
        self.has_topics_record = False
        # The member that owns each partition, or must still revoke it. Invariant: at most one.
        self._owners: dict[TopicId, dict[int, str]] = {}

    def copy(self) -> "ConsumerGroup":
        """A copy; it shares members and partition sets, which are immutable."""
        other = ConsumerGroup(self.group_id)
        other.epoch = self.epoch
        other.metadata_hash = self.metadata_hash
        other.empty_since_ms = self.empty_since_ms
        other.target_epoch = self.target_epoch
        other.members = dict(self.members)
        other.static_members = dict(self.static_members)
        other.targets = dict(self.targets)
        other.resolved = dict(self.resolved)
        other.has_topics_record = self.has_topics_record
        other._owners = {topic_id: dict(owners) for topic_id, owners in self._owners.items()}
        return other

    # --- queries

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members request; on a tie, the first by name."""
        votes = Counter(
            member.assignor for member in self.members.values() if member.assignor is not None
        )
        if not votes:
            return DEFAULT_ASSIGNOR
        return min(votes, key=lambda name: (-votes[name], name))

    @property
    def classic_members(self) -> list[ConsumerMember]:
        return [member for member in self.members.values() if member.classic is not None]

    def topic_names_of(self, member: ConsumerMember) -> frozenset[str]:
        if member.topic_pattern is None:
            return member.topic_names
        return member.topic_names | self.resolved.get(member.topic_pattern, frozenset())

    def topic_ids_of(self, member: ConsumerMember, topics: TopicsView) -> frozenset[TopicId]:
        return frozenset(
            topics[name].topic_id for name in self.topic_names_of(member) if name in topics
        )

    def topic_names(self) -> frozenset[str]:
        return frozenset[str]().union(
            *(self.topic_names_of(member) for member in self.members.values())
        )

    def patterns(self) -> frozenset[str]:
        return frozenset(
            member.topic_pattern
            for member in self.members.values()
            if member.topic_pattern is not None
        )

    def reads(self, topic_name: str) -> bool:
        """True if a member subscribes to the topic."""
        return any(topic_name in self.topic_names_of(member) for member in self.members.values())

    def held_by_others(self, member_id: str, partitions: PartitionSet) -> PartitionSet:
        """The subset of these partitions that another member owns, or must still revoke."""
        held: dict[TopicId, frozenset[int]] = {}
        for topic_id, numbers in partitions.items():
            owners = self._owners.get(topic_id)
            if owners:
                of_others = frozenset(n for n in numbers if owners.get(n, member_id) != member_id)
                if of_others:
                    held[topic_id] = of_others
        return held

    def hash_of_topics(self, topics: TopicsView) -> int:
        """A hash that changes if a subscribed topic is created, deleted or gets partitions; not 0 if topics exist."""
        hasher = blake2b(digest_size=8)
        read = sorted(name for name in self.topic_names() if name in topics)
        for name in read:
            topic = topics[name]
            hasher.update(
                b"%s %d %b\n" % (topic.topic_id.bytes, topic.partition_count, name.encode())
            )
        return int.from_bytes(hasher.digest(), signed=True) or 1 if read else 0

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that sent a request.

        Raises:
            FencedInstanceId: another member has taken over the static member's instance id.
            UnknownMemberId: there is no such member.
        """
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {self.group_id} has no static member {instance_id}")
            if current != member_id:
                raise FencedInstanceId(
                    f"{instance_id} of group {self.group_id} is member {current} now, not {member_id}"
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id}")
        return member

    def check_commit(self, request: OffsetCommit) -> None:
        """Check that a commit is from a current member, or that the group has no members.

        Raises:
            UnknownMemberId: there is no such member.
            StaleMemberEpoch, IllegalGeneration: the member's epoch differs from the request's.
            UnsupportedVersion: the request's version has no member epoch.
        """
        if request.generation < 0 and not self.members:
            return
        member = self.find(request.member_id, None)
        if member.classic is None and not request.knows_member_epochs:
            raise UnsupportedVersion(
                "members of the consumer protocol commit with version 9 or later"
            )
        _check_epoch(member, request.generation)

    def check_txn_commit(self, request: TxnOffsetCommit) -> None:
        """Check a producer's commit: it may name a current member, or none; without members, any producer may commit.

        Raises:
            UnknownMemberId: there is no such member.
            StaleMemberEpoch, IllegalGeneration: the member's epoch differs; older producers know only the latter.
        """
        names_nobody = request.member_id == NO_MEMBER_ID and request.instance_id is None
        if request.generation < 0 and (names_nobody or not self.members):
            return
        member = self.find(request.member_id, None)
        if request.knows_member_epochs:
            _check_epoch(member, request.generation)
        elif request.generation != member.epoch:
            raise IllegalGeneration(_wrong_epoch(member, request.generation))

    def check_fetch(self, asked: GroupToFetch) -> None:
        """Check the epoch of a member that fetches offsets; requests that name no member are always allowed.

        Raises:
            UnknownMemberId: there is no such member.
            StaleMemberEpoch, IllegalGeneration: the member's epoch differs from the request's.
        """
        if asked.member_id is not None or asked.member_epoch >= 0:
            _check_epoch(self.find(asked.member_id or NO_MEMBER_ID, None), asked.member_epoch)

    # --- changes

    def replay(self, key: ConsumerRecordKey, value: ConsumerRecordValue | None) -> None:
        """Apply a record. Compaction may have removed earlier records, so each one is applied independently.

        Deleting the group as a whole is left to the caller.
        """
        match key.kind:
            case ConsumerRecordKind.GROUP:
                if isinstance(value, GroupValue):
                    self.epoch = value.epoch
                    self.metadata_hash = value.metadata_hash
                    self.empty_since_ms = value.empty_since_ms
            case ConsumerRecordKind.TARGET_EPOCH:
                self.target_epoch = value.epoch if isinstance(value, TargetEpochValue) else 0
            case ConsumerRecordKind.TOPICS:
                self.has_topics_record = value is not None
            case ConsumerRecordKind.PATTERN:
                if isinstance(value, PatternValue):
                    self.resolved[key.name] = value.topic_names
                else:
                    self.resolved.pop(key.name, None)
            case ConsumerRecordKind.TARGET:
                if isinstance(value, TargetValue):
                    self.targets[key.name] = value.partitions
                else:
                    self.targets.pop(key.name, None)
            case ConsumerRecordKind.MEMBER | ConsumerRecordKind.CURRENT:
                self._replay_member(key, value)

    def _replay_member(self, key: ConsumerRecordKey, value: ConsumerRecordValue | None) -> None:
        member = self.members.get(key.name) or ConsumerMember(member_id=key.name)
        if isinstance(value, MemberValue | CurrentValue):
            self._put(replace(member, **value._asdict()))
        elif key.kind is ConsumerRecordKind.MEMBER:
            self._remove(key.name)
        elif key.name in self.members:
            self._put(_without_assignment(member))

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._forget_owner(before)
            self._forget_instance(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                owners = self._owners.setdefault(topic_id, {})
                owners.update(dict.fromkeys(numbers, member.member_id))

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget_owner(member)
            self._forget_instance(member)

    def _forget_instance(self, member: ConsumerMember) -> None:
        if (
            member.instance_id is not None
            and self.static_members.get(member.instance_id) == member.member_id
        ):
            del self.static_members[member.instance_id]

    def _forget_owner(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                owners = self._owners.get(topic_id, {})
                for number in numbers:
                    if owners.get(number) == member.member_id:
                        del owners[number]
                if not owners:
                    self._owners.pop(topic_id, None)


def _without_assignment(member: ConsumerMember) -> ConsumerMember:
    return replace(
        member,
        epoch=LEAVE_EPOCH,
        previous_epoch=LEAVE_EPOCH,
        state=MemberState.STABLE,
        assigned=NO_PARTITIONS,
        revoking=NO_PARTITIONS,
    )


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch == member.epoch:
        return
    wrong = _wrong_epoch(member, epoch)
    raise StaleMemberEpoch(wrong) if member.classic is None else IllegalGeneration(wrong)


def _wrong_epoch(member: ConsumerMember, epoch: int) -> str:
    return f"member {member.member_id} is at epoch {member.epoch}, the request at {epoch}"
