"""A consumer group as it will be after a decision's records are replayed, together with these records.

A decision takes several steps, each based on the result of the previous one. The steps work on a copy of the group
and change it by `replay`, exactly as the records will change the group itself. The first write makes the copy.
"""

from collections.abc import Iterable

from respool.coordination.draft import Draft
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import ConsumerMember
from respool.coordination.groups.consumer.consumer_record_bytes import (
    write_consumer_key,
    write_consumer_value,
)
from respool.coordination.groups.consumer.consumer_records import (
    ConsumerRecordKey,
    ConsumerRecordKind,
    ConsumerRecordValue,
    CurrentValue,
    MemberValue,
)


class ConsumerDraft:
    __slots__ = ("_is_copy", "_records", "group")

    def __init__(self, group: ConsumerGroup) -> None:
        # The group until the first write, then the changed copy.
        self.group = group
        self._is_copy = False
        self._records: list[tuple[bytes, bytes | None]] = []

    @property
    def is_empty(self) -> bool:
        return not self._records

    def put(self, kind: ConsumerRecordKind, value: ConsumerRecordValue, name: str = "") -> None:
        """Write a value for the group, or for the named member or pattern."""
        self._write(ConsumerRecordKey(kind, self.group.group_id, name), value)

    def put_member(self, member: ConsumerMember) -> None:
        """Write a member's subscription and details."""
        self.put(ConsumerRecordKind.MEMBER, member_value(member), member.member_id)

    def put_current(self, member: ConsumerMember) -> None:
        """Write a member's current assignment."""
        self.put(ConsumerRecordKind.CURRENT, current_value(member), member.member_id)

    def end(self, keys: Iterable[ConsumerRecordKey]) -> None:
        """Write tombstones for these keys."""
        for key in keys:
            self._write(key, None)

    def write_other(self, key: bytes, value: bytes | None) -> None:
        """Write a record of another kind."""
        self._records.append((key, value))

    def flush(self, draft: Draft) -> None:
        for key, value in self._records:
            draft.write(key, value)
        self._records.clear()

    def _write(self, key: ConsumerRecordKey, value: ConsumerRecordValue | None) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        self.group.replay(key, value)
        written = None if value is None else write_consumer_value(value)
        self._records.append((write_consumer_key(key), written))


def member_value(member: ConsumerMember) -> MemberValue:
    return MemberValue(**{name: getattr(member, name) for name in MemberValue._fields})


def current_value(member: ConsumerMember) -> CurrentValue:
    return CurrentValue(**{name: getattr(member, name) for name in CurrentValue._fields})


def end_of_member(group_id: str, member_id: str) -> Iterable[ConsumerRecordKey]:
    """The keys of the records to delete with a member, in the order that Kafka expects."""
    for kind in (ConsumerRecordKind.CURRENT, ConsumerRecordKind.TARGET, ConsumerRecordKind.MEMBER):
        yield ConsumerRecordKey(kind, group_id, member_id)


def end_of_group(group: ConsumerGroup) -> Iterable[ConsumerRecordKey]:
    """The keys of the records to delete with a group, in the order that Kafka expects."""
    member_ids = group.members.keys() | group.targets.keys()
    for kind in (ConsumerRecordKind.CURRENT, ConsumerRecordKind.TARGET):
        for member_id in sorted(member_ids):
            yield ConsumerRecordKey(kind, group.group_id, member_id)
    yield ConsumerRecordKey(ConsumerRecordKind.TARGET_EPOCH, group.group_id)
    for member_id in sorted(member_ids):
        yield ConsumerRecordKey(ConsumerRecordKind.MEMBER, group.group_id, member_id)
    for pattern in sorted(group.resolved):
        yield ConsumerRecordKey(ConsumerRecordKind.PATTERN, group.group_id, pattern)
    if group.has_topics_record:
        yield ConsumerRecordKey(ConsumerRecordKind.TOPICS, group.group_id)
    yield ConsumerRecordKey(ConsumerRecordKind.GROUP, group.group_id)
