"""The committed offsets of all groups of a shard.

There may be very many, and most are never fetched. So each offset is kept as the value of its record, one small bytes
object, and only decoded when it is fetched; replay finds the entry by the prefix of the key without decoding it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from respool.coordination.draft import Draft
from respool.coordination.groups.group_requests import (
    RETENTION_BY_BROKER,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetToCommit,
    PartitionResult,
    TopicResult,
    TopicToCommit,
    TopicToFetch,
)
from respool.coordination.groups.offset_records import (
    OFFSET_KEY_VERSION,
    PARTITION_BYTES,
    CommittedOffset,
    check_offset_value,
    offset_key_prefix,
    read_committed_offset,
    read_offset_key,
    read_offset_times,
    read_offset_value,
    write_offset_value,
)
from respool.coordination.groups.pending_offsets import PendingOffsets
from respool.coordination.record_bytes import fits_a_string
from respool.model.coordinator_errors import (
    GroupSubscribedToTopic,
    OffsetMetadataTooLarge,
    UnstableOffsetCommit,
)
from respool.model.errors import RequestError
from respool.model.ids import NO_PRODUCER_ID, NO_TIMESTAMP, Offset, ProducerId

_INT64_MAX = 2**63 - 1
_KEY_VERSION = OFFSET_KEY_VERSION.to_bytes(2, "big")


class ExpiryRule(NamedTuple):
    """When a group's offsets expire. Offsets that never expire have no rule."""

    # The retention time starts here, or at the commit if that was later.
    since_ms: int
    # True for topics whose offsets do not expire.
    reads: Callable[[str], bool]


class _TopicOffsets:
    """One group's offsets for one topic."""

    __slots__ = ("key_prefix", "values")

    def __init__(self, key_prefix: bytes) -> None:
        self.key_prefix = key_prefix
        # Record values by partition.
        self.values: dict[int, bytes] = {}

    def key(self, partition: int) -> bytes:
        return _key(self.key_prefix, partition)


class CommittedOffsets:
    def __init__(self, *, metadata_length_max: int) -> None:
        self._metadata_length_max = metadata_length_max
        # Invariant: no group without topics, no topic without partitions; both indexes have the same entries.
        self._groups: dict[str, dict[str, _TopicOffsets]] = {}
        self._by_prefix: dict[bytes, _TopicOffsets] = {}
        self._pending = PendingOffsets()

    # --- queries

    def __len__(self) -> int:
        return sum(len(topic.values) for topic in self._by_prefix.values())

    def group_ids(self) -> Collection[str]:
        return self._groups.keys()

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def committed_of(self, group_id: str) -> list[tuple[str, int, Offset]]:
        """Topic, partition and offset of all offsets that the group has committed."""
        return [
            (name, partition, read_committed_offset(value))
            for name, topic in self._groups.get(group_id, {}).items()
            for partition, value in topic.values.items()
        ]

    def has_pending(self, group_id: str) -> bool:
        """True if an open transaction has pending offsets of the group."""
        return next(self._pending_keys(group_id), None) is not None

    def fetch(self, asked: GroupToFetch, *, require_stable: bool) -> FetchedGroup:
        """The committed offsets; unknown partitions have no offset and no error."""
        topics = self._groups.get(asked.group_id, {})
        wanted = asked.topics
        if wanted is None:
            wanted = tuple(
                TopicToFetch(name, tuple(topic.values)) for name, topic in topics.items()
            )
        return FetchedGroup(
            asked.group_id,
            tuple(
                self._fetch_topic(asked.group_id, topics.get(one.topic), one, require_stable)
                for one in wanted
            ),
        )

    def _fetch_topic(
        self,
        group_id: str,
        topic: _TopicOffsets | None,
        wanted: TopicToFetch,
        require_stable: bool,
    ) -> FetchedTopic:
        values = {} if topic is None else topic.values
        fetched = []
        for partition in wanted.partitions:
            value = values.get(partition)
            if require_stable and self._is_pending(group_id, wanted.topic, partition):
                error = UnstableOffsetCommit(
                    f"{wanted.topic}-{partition} of group {group_id} is in an open transaction"
                )
                fetched.append(FetchedOffset(partition, error=error))
            elif value is None:
                fetched.append(FetchedOffset(partition))
            else:
                found = read_offset_value(value)
                fetched.append(
                    FetchedOffset(
                        partition,
                        found.offset,
                        found.leader_epoch,
                        found.metadata,
                        None,
                        found.topic_id,
                    )
                )
        return FetchedTopic(wanted.topic, tuple(fetched))

    # --- decisions

    def commit(
        self,
        group_id: str,
        topics: tuple[TopicToCommit, ...],
        *,
        draft: Draft,
        retention_ms: int = RETENTION_BY_BROKER,
    ) -> tuple[TopicResult, ...]:
        """Commit offsets; each partition has its own result."""
        expires_at_ms = (
            NO_TIMESTAMP if retention_ms < 0 else min(draft.wall_ms + retention_ms, _INT64_MAX)
        )
        results = []
        for topic in topics:
            key_prefix = self._key_prefix(group_id, topic.topic)
            partitions = []
            for one in topic.partitions:
                error = self._check_metadata(one)
                if error is None:
                    committed = CommittedOffset(
                        one.offset,
                        one.leader_epoch,
                        one.metadata,
                        draft.wall_ms,
                        expires_at_ms,
                        topic.topic_id,
                    )
                    draft.write(_key(key_prefix, one.partition), write_offset_value(committed))
                partitions.append(PartitionResult(one.partition, error))
            results.append(TopicResult(topic.topic, tuple(partitions)))
        return tuple(results)

    def _check_metadata(self, one: OffsetToCommit) -> RequestError | None:
        length = len(one.metadata)
        if length > self._metadata_length_max or not fits_a_string(one.metadata):
            return OffsetMetadataTooLarge(
                f"metadata of {length} characters, limit {self._metadata_length_max}"
            )
        return None

    def delete(
        self,
        group_id: str,
        topics: tuple[TopicToFetch, ...],
        *,
        reads: Callable[[str], bool],
        draft: Draft,
    ) -> tuple[TopicResult, ...]:
        """Delete offsets, except for subscribed topics. Deleting a missing offset succeeds."""
        results = []
        for one in topics:
            error = None
            if reads(one.topic):
                error = GroupSubscribedToTopic(f"group {group_id} reads {one.topic}")
            else:
                topic = self._groups.get(group_id, {}).get(one.topic)
                values = {} if topic is None else topic.values
                for partition in one.partitions:
                    if partition in values or self._is_pending(group_id, one.topic, partition):
                        draft.write(_key(self._key_prefix(group_id, one.topic), partition), None)
            results.append(
                TopicResult(one.topic, tuple(PartitionResult(p, error) for p in one.partitions))
            )
        return tuple(results)

    def delete_all(self, group_id: str, *, draft: Draft) -> None:
        keys = {
            topic.key(partition): None
            for topic in self._groups.get(group_id, {}).values()
            for partition in topic.values
        }
        for key in (*keys, *(key for key in self._pending_keys(group_id) if key not in keys)):
            draft.write(key, None)

    def delete_topics(self, names: Collection[str], *, draft: Draft) -> None:
        for topics in self._groups.values():
            for name in names:
                topic = topics.get(name)
                if topic is not None:
                    for partition in topic.values:
                        draft.write(topic.key(partition), None)
        for key in self._pending.keys_beginning_with(b""):
            _, name, partition = read_offset_key(key)
            if name in names and partition not in self._values_at(key):
                draft.write(key, None)

    def delete_partitions(self, first_gone: Mapping[str, int], *, draft: Draft) -> None:
        """Delete the offsets of partitions from these numbers on, by topic."""
        for topics in self._groups.values():
            for name, first in first_gone.items():
                topic = topics.get(name)
                for partition in () if topic is None else topic.values:
                    if partition >= first:
                        assert topic is not None
                        draft.write(topic.key(partition), None)
        for key in self._pending.keys_beginning_with(b""):
            _, name, partition = read_offset_key(key)
            if partition >= first_gone.get(
                name, partition + 1
            ) and partition not in self._values_at(key):
                draft.write(key, None)

    def expire(self, group_id: str, rule: ExpiryRule, *, retention_ms: int, draft: Draft) -> bool:
        """Delete expired offsets; return True if the group has none left."""
        are_all_gone = True
        for name, topic in self._groups.get(group_id, {}).items():
            if rule.reads(name):
                are_all_gone = False
                continue
            for partition, value in topic.values.items():
                committed_at_ms, expires_at_ms = read_offset_times(value)
                if expires_at_ms == NO_TIMESTAMP:
                    expires_at_ms = max(rule.since_ms, committed_at_ms) + retention_ms
                if (
                    expires_at_ms <= draft.earlier_clock_ms
                    and topic.key(partition) not in self._pending
                ):
                    draft.write(topic.key(partition), None)
                else:
                    are_all_gone = False
        return are_all_gone and not self.has_pending(group_id)

    # --- replay

    def replay(
        self, key: bytes, value: bytes | None, *, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Raises:
        CoordinatorRecordDamaged: the record cannot be read.
        """
        if key[:2] != _KEY_VERSION:
            # Both key versions have the same meaning and must map to one entry.
            key = _KEY_VERSION + key[2:]
        if value is None:
            self._remove(key)
            return
        check_offset_value(value)
        if producer_id != NO_PRODUCER_ID:
            read_offset_key(key)
            self._pending.add(producer_id, key, value)
            return
        if self._pending:
            self._pending.drop(key)
        self._put(key, value)

    def end_transaction(self, producer_id: ProducerId, *, is_committed: bool) -> None:
        if not is_committed:
            self._pending.abort(producer_id)
            return
        for key, value in self._pending.commit(producer_id):
            self._put(key, value)

    def _put(self, key: bytes, value: bytes) -> None:
        topic = self._by_prefix.get(key[:-PARTITION_BYTES])
        if topic is None:
            topic = self._add_topic(key)
        topic.values[int.from_bytes(key[-PARTITION_BYTES:], "big", signed=True)] = value

    def _add_topic(self, key: bytes) -> _TopicOffsets:
        group_id, name, _ = read_offset_key(key)
        topics = self._groups.setdefault(group_id, {})
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = _TopicOffsets(offset_key_prefix(group_id, name))
            self._by_prefix[topic.key_prefix] = topic
        return topic

    def _remove(self, key: bytes) -> None:
        group_id, name, partition = read_offset_key(key)
        self._pending.drop(key)
        topic = self._groups.get(group_id, {}).get(name)
        if topic is None:
            return
        topic.values.pop(partition, None)
        if not topic.values:
            del self._by_prefix[topic.key_prefix]
            topics = self._groups[group_id]
            del topics[name]
            if not topics:
                del self._groups[group_id]

    # --- helpers

    def _key_prefix(self, group_id: str, name: str) -> bytes:
        topic = self._groups.get(group_id, {}).get(name)
        return offset_key_prefix(group_id, name) if topic is None else topic.key_prefix

    def _is_pending(self, group_id: str, name: str, partition: int) -> bool:
        # A request may contain any text, including text too long for a key.
        if not self._pending or not fits_a_string(group_id) or not fits_a_string(name):
            return False
        return _key(self._key_prefix(group_id, name), partition) in self._pending

    def _values_at(self, key: bytes) -> dict[int, bytes]:
        topic = self._by_prefix.get(key[:-PARTITION_BYTES])
        return {} if topic is None else topic.values

    def _pending_keys(self, group_id: str) -> Iterator[bytes]:
        # A key begins with the length and name of the group, so the prefix is unambiguous.
        return self._pending.keys_beginning_with(offset_key_prefix(group_id, "")[:-2])


def _key(key_prefix: bytes, partition: int) -> bytes:
    return key_prefix + partition.to_bytes(PARTITION_BYTES, "big", signed=True)
