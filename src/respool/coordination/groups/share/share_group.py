"""A share group at its coordinator: its state in the log, which changes only by `replay`.

As in consumer groups, a change of members, subscriptions or topics bumps the group's epoch, and a new target assignment
takes that epoch. A member takes its target at once: several members may have one partition, so nobody has to revoke
anything first. Only partitions that have state at the share coordinator are assigned.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from respool.coordination.draft import Draft
from respool.coordination.groups.consumer.consumer_member import JOIN_EPOCH
from respool.coordination.groups.consumer.partition_sets import (
    NO_PARTITIONS,
    PartitionSet,
    union,
)
from respool.coordination.groups.consumer.topics_view import TopicsView
from respool.coordination.groups.group_requests import GroupState
from respool.coordination.groups.share.share_group_records import (
    ShareCurrentValue,
    ShareGroupValue,
    ShareMemberValue,
    ShareRecordKey,
    ShareRecordKind,
    ShareRecordValue,
    ShareStatesValue,
    ShareTargetEpochValue,
    ShareTargetValue,
    write_share_key,
    write_share_value,
)
from respool.model.ids import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()

    epoch: int = JOIN_EPOCH
    # If the reply with the new epoch is lost, the member sends this one again.
    previous_epoch: int = JOIN_EPOCH
    assigned: PartitionSet = field(default_factory=dict)

    @property
    def value(self) -> ShareMemberValue:
        return ShareMemberValue(self.rack_id, self.client_id, self.client_host, self.topic_names)


class ShareGroup:
    __slots__ = (
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "states",
        "target_epoch",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ShareMember] = {}
        # The target assignment of each member.
        self.targets: dict[str, PartitionSet] = {}
        # Which partitions have state at the share coordinator, get some, or lose it.
        self.states = ShareStatesValue()

    def copy(self) -> "ShareGroup":
        """A copy; it shares members and partition sets, which are immutable."""
        other = ShareGroup(self.group_id)
        other.epoch = self.epoch
        other.metadata_hash = self.metadata_hash
        other.target_epoch = self.target_epoch
        other.members = dict(self.members)
        other.targets = dict(self.targets)
        other.states = self.states
        return other

    # --- queries

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def is_assigned(self) -> bool:
        """True if the target assignment is that of the group's epoch."""
        return self.target_epoch >= self.epoch

    def topic_names(self) -> frozenset[str]:
        return frozenset[str]().union(*(member.topic_names for member in self.members.values()))

    def subscribed(self, topics: TopicsView) -> PartitionSet:
        """All partitions of the topics that members subscribe to."""
        return partitions_of(self.topic_names(), topics)

    def hash_of_topics(self, topics: TopicsView) -> int:
        """A hash that changes if a subscribed topic is created, deleted or gets partitions; not 0 if topics exist."""
        read = sorted(name for name in self.topic_names() if name in topics)
        hasher = blake2b(digest_size=8)
        for name in read:
            topic = topics[name]
            hasher.update(
                b"%s %d %b\n" % (topic.topic_id.bytes, topic.partition_count, name.encode())
            )
        return int.from_bytes(hasher.digest(), signed=True) or 1 if read else 0

    # --- changes

    def replay(self, key: ShareRecordKey, value: ShareRecordValue | None) -> None:
        """Apply a record. Compaction may have removed earlier records, so each one is applied independently.

        Deleting the group as a whole is left to the caller.
        """
        match key.kind:
            case ShareRecordKind.GROUP:
                known = value if isinstance(value, ShareGroupValue) else ShareGroupValue(0, 0)
                self.epoch, self.metadata_hash = known
            case ShareRecordKind.TARGET_EPOCH:
                self.target_epoch = value.epoch if isinstance(value, ShareTargetEpochValue) else 0
            case ShareRecordKind.TARGET:
                if isinstance(value, ShareTargetValue):
                    self.targets[key.member_id] = value.partitions
                else:
                    self.targets.pop(key.member_id, None)
            case ShareRecordKind.STATES:
                self.states = value if isinstance(value, ShareStatesValue) else ShareStatesValue()
            case ShareRecordKind.MEMBER | ShareRecordKind.CURRENT:
                self._replay_member(key, value)

    def _replay_member(self, key: ShareRecordKey, value: ShareRecordValue | None) -> None:
        member = self.members.get(key.member_id) or ShareMember(member_id=key.member_id)
        if isinstance(value, ShareMemberValue | ShareCurrentValue):
            self.members[key.member_id] = replace(member, **value._asdict())
        elif key.kind is ShareRecordKind.MEMBER:
            self.members.pop(key.member_id, None)
        elif key.member_id in self.members:
            self.members[key.member_id] = replace(
                member, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, assigned=NO_PARTITIONS
            )


class ShareGroupDraft:
    """A share group as it will be after a decision's records are replayed, together with these records."""

    __slots__ = ("_is_copy", "_records", "group")

    def __init__(self, group: ShareGroup) -> None:
        # The group until the first write, then the changed copy.
        self.group = group
        self._is_copy = False
        self._records: list[tuple[bytes, bytes | None]] = []

    @property
    def is_empty(self) -> bool:
        return not self._records

    def put(self, kind: ShareRecordKind, value: ShareRecordValue, member_id: str = "") -> None:
        """Write a value for the group or for a member."""
        self._write(ShareRecordKey(kind, self.group.group_id, member_id), value)

    def put_current(self, member: ShareMember) -> None:
        """Write a member's epoch and assignment."""
        value = ShareCurrentValue(member.epoch, member.previous_epoch, member.assigned)
        self.put(ShareRecordKind.CURRENT, value, member.member_id)

    def put_states(
        self,
        *,
        initializing: PartitionSet | None = None,
        initialized: PartitionSet | None = None,
        deleting: PartitionSet | None = None,
        topics: TopicsView,
    ) -> None:
        """Write which partitions have state; what is None stays as it is."""
        old = self.group.states
        states = ShareStatesValue(
            initializing=old.initializing if initializing is None else initializing,
            initialized=old.initialized if initialized is None else initialized,
            deleting=old.deleting if deleting is None else deleting,
        )
        names = {**dict(old.names), **{topic.topic_id: name for name, topic in topics.items()}}
        used = {*states.initializing, *states.initialized, *states.deleting}
        states = states._replace(
            names=tuple(sorted((one, names.get(one, "")) for one in used)),
        )
        if states != old:
            self.put(ShareRecordKind.STATES, states)

    def begin_epoch(self, topics: TopicsView) -> None:
        group = self.group
        self.put(
            ShareRecordKind.GROUP, ShareGroupValue(group.epoch + 1, group.hash_of_topics(topics))
        )

    def end_member(self, member_id: str) -> None:
        """Delete a member's records, in the order that Kafka expects."""
        for kind in (ShareRecordKind.CURRENT, ShareRecordKind.TARGET, ShareRecordKind.MEMBER):
            self._write(ShareRecordKey(kind, self.group.group_id, member_id), None)

    def end_group(self) -> None:
        """Delete a group without members."""
        group_id = self.group.group_id
        assert not self.group.members, group_id
        for kind in (ShareRecordKind.STATES, ShareRecordKind.TARGET_EPOCH, ShareRecordKind.GROUP):
            self._write(ShareRecordKey(kind, group_id), None)

    def flush(self, draft: Draft) -> None:
        for key, value in self._records:
            draft.write(key, value)
        self._records.clear()

    def _write(self, key: ShareRecordKey, value: ShareRecordValue | None) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        self.group.replay(key, value)
        written = None if value is None else write_share_value(value)
        self._records.append((write_share_key(key), written))


def partitions_of(names: Iterable[str], topics: TopicsView) -> PartitionSet:
    """All partitions of those of the topics that exist."""
    found: dict[TopicId, frozenset[int]] = {}
    for name in names:
        topic = topics.get(name)
        if topic is not None and topic.partition_count:
            found[topic.topic_id] = frozenset(range(topic.partition_count))
    return found


def without_topics(partitions: PartitionSet, gone: Iterable[TopicId]) -> PartitionSet:
    left = set(gone)
    return {topic_id: numbers for topic_id, numbers in partitions.items() if topic_id not in left}


def with_state(states: ShareStatesValue) -> PartitionSet:
    """The partitions that have state or may have some."""
    return union(union(states.initializing, states.initialized), states.deleting)
