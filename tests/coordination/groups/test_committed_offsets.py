from uuid import UUID

import pytest

from coordination.shard_world import START_MS
from respool.coordination.decision import CoordinatorRecord
from respool.coordination.draft import Draft
from respool.coordination.groups.committed_offsets import CommittedOffsets, ExpiryRule
from respool.coordination.groups.group_requests import (
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
)
from respool.coordination.groups.offset_records import (
    CommittedOffset,
    offset_key_prefix,
    read_offset_value,
    write_offset_value,
)
from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.model.coordinator_errors import (
    GroupSubscribedToTopic,
    OffsetMetadataTooLarge,
    UnstableOffsetCommit,
)
from respool.model.ids import LeaderEpoch, Offset, ProducerId, TopicId

ONE = ProducerId(1)
TWO = ProducerId(2)
TOPIC_ID = TopicId(UUID(int=7))
EVERYTHING_MS = 2**62


def reads_nothing(topic: str) -> bool:
    return False


class Store:
    """Offsets, with what is decided replayed at once."""

    def __init__(self) -> None:
        self.offsets = CommittedOffsets(metadata_length_max=5)

    def commit(
        self, offset: int, *, group: str = "g", topic: str = "t", partition: int = 0
    ) -> None:
        self.offsets.replay(key(group, topic, partition), value(offset))

    def pend(
        self,
        producer_id: ProducerId,
        offset: int,
        *,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
    ) -> None:
        self.offsets.replay(key(group, topic, partition), value(offset), producer_id=producer_id)

    def fetch(
        self, partition: int = 0, *, group: str = "g", topic: str = "t", stable: bool = False
    ) -> FetchedOffset:
        asked = GroupToFetch(group, (TopicToFetch(topic, (partition,)),))
        return self.offsets.fetch(asked, require_stable=stable).topics[0].partitions[0]

    def take(self, draft: Draft) -> list[CoordinatorRecord]:
        records = list(draft.decision().records)
        for record in records:
            self.offsets.replay(record.key, record.value)
        return records


def key(group: str = "g", topic: str = "t", partition: int = 0) -> bytes:
    return offset_key_prefix(group, topic) + partition.to_bytes(4, "big")


def value(offset: int) -> bytes:
    return write_offset_value(CommittedOffset(Offset(offset), LeaderEpoch(3), "", START_MS))


# --- commit and fetch


def test_what_is_committed_comes_back_whole() -> None:
    store = Store()
    draft = Draft(START_MS)
    one = OffsetToCommit(4, Offset(10), LeaderEpoch(2), "note")
    (result,) = store.offsets.commit("g", (TopicToCommit("t", (one,), TOPIC_ID),), draft=draft)
    assert result.partitions[0].error is None
    assert store.fetch(4) == FetchedOffset(4)
    store.take(draft)
    assert store.fetch(4) == FetchedOffset(4, Offset(10), LeaderEpoch(2), "note", None, TOPIC_ID)


def test_a_commit_only_counts_once_its_record_is_replayed() -> None:
    store = Store()
    draft = Draft(START_MS)
    store.offsets.commit("g", (TopicToCommit("t", (OffsetToCommit(0, Offset(1)),)),), draft=draft)
    assert not store.offsets.has_group("g")
    assert len(store.offsets) == 0


def test_metadata_that_is_too_long_spoils_its_own_partition_only() -> None:
    store = Store()
    draft = Draft(START_MS)
    some = (
        OffsetToCommit(0, Offset(1), metadata="short"),
        OffsetToCommit(1, Offset(1), metadata="longer"),
    )
    (result,) = store.offsets.commit("g", (TopicToCommit("t", some),), draft=draft)
    assert [type(one.error) for one in result.partitions] == [type(None), OffsetMetadataTooLarge]
    store.take(draft)
    assert (store.fetch(0).offset, store.fetch(1).offset) == (1, -1)


def test_metadata_that_fits_no_record_is_refused_whatever_the_setting() -> None:
    offsets = CommittedOffsets(metadata_length_max=10**6)
    one = OffsetToCommit(0, Offset(1), metadata="ü" * 20_000)
    (result,) = offsets.commit("g", (TopicToCommit("t", (one,)),), draft=Draft(START_MS))
    assert type(result.partitions[0].error) is OffsetMetadataTooLarge


@pytest.mark.parametrize(
    ("retention_ms", "expected"), [(-1, -1), (1_000, START_MS + 1_000), (2**63 - 1, 2**63 - 1)]
)
def test_an_old_client_may_say_how_long_to_keep_an_offset(retention_ms: int, expected: int) -> None:
    draft = Draft(START_MS)
    Store().offsets.commit(
        "g",
        (TopicToCommit("t", (OffsetToCommit(0, Offset(1)),)),),
        retention_ms=retention_ms,
        draft=draft,
    )
    (record,) = draft.decision().records
    assert record.value is not None
    assert read_offset_value(record.value).expires_at_ms == expected


def test_what_is_not_there_is_fetched_as_nothing_without_an_error() -> None:
    store = Store()
    store.commit(5)
    for group, topic, partition in (("x", "t", 0), ("g", "x", 0), ("g", "t", 9)):
        assert store.fetch(partition, group=group, topic=topic) == FetchedOffset(partition)


def test_any_text_may_be_asked_for() -> None:
    store = Store()
    store.pend(ONE, 1)
    assert store.fetch(topic="t" * 40_000, stable=True).offset == -1
    assert store.fetch(group="g" * 40_000, stable=True).offset == -1


def test_all_topics_of_a_group_can_be_asked_for() -> None:
    store = Store()
    store.commit(1, topic="a", partition=2)
    store.commit(2, topic="b")
    store.commit(3, topic="b", partition=1)
    store.commit(9, group="other", topic="c")
    assert store.offsets.fetch(GroupToFetch("g", None), require_stable=False).topics == (
        FetchedTopic("a", (FetchedOffset(2, Offset(1), LeaderEpoch(3)),)),
        FetchedTopic(
            "b",
            (
                FetchedOffset(0, Offset(2), LeaderEpoch(3)),
                FetchedOffset(1, Offset(3), LeaderEpoch(3)),
            ),
        ),
    )
    assert store.offsets.fetch(GroupToFetch("nobody", None), require_stable=False).topics == ()


# --- replay


def test_the_last_record_of_a_key_counts_in_either_version_of_keys() -> None:
    store = Store()
    store.commit(1)
    store.offsets.replay(b"\0\0" + key()[2:], value(2))
    assert store.fetch().offset == 2
    store.commit(3)
    assert store.fetch().offset == 3
    assert len(store.offsets) == 1


def test_a_tombstone_leaves_nothing_behind() -> None:
    store = Store()
    store.commit(1)
    store.commit(2, partition=1)
    store.offsets.replay(key(partition=1), None)
    assert store.offsets.has_group("g")
    store.offsets.replay(b"\0\0" + key()[2:], None)
    assert not store.offsets.has_group("g")
    assert not store.offsets._groups
    assert not store.offsets._by_prefix
    store.offsets.replay(key(), None)


@pytest.mark.parametrize("damaged", [key()[:-1], b"\0\1", key() + b"\0"])
def test_a_damaged_key_is_refused(damaged: bytes) -> None:
    store = Store()
    store.commit(1)
    with pytest.raises(CoordinatorRecordDamaged):
        store.offsets.replay(damaged, value(2))
    with pytest.raises(CoordinatorRecordDamaged):
        store.offsets.replay(damaged, value(2), producer_id=ONE)
    assert store.fetch().offset == 1


def test_a_damaged_value_is_refused_and_changes_nothing() -> None:
    store = Store()
    store.commit(1)
    with pytest.raises(CoordinatorRecordDamaged):
        store.offsets.replay(key(), value(2)[:-1])
    assert store.fetch().offset == 1


# --- deleting


def test_offsets_are_deleted_except_of_topics_the_group_reads() -> None:
    store = Store()
    store.commit(1, topic="read")
    store.commit(1, topic="old")
    draft = Draft(START_MS)
    read, old = store.offsets.delete(
        "g",
        (TopicToFetch("read", (0,)), TopicToFetch("old", (0, 7))),
        reads=lambda topic: topic == "read",
        draft=draft,
    )
    assert type(read.partitions[0].error) is GroupSubscribedToTopic
    assert [one.error for one in old.partitions] == [None, None]
    assert store.take(draft) == [CoordinatorRecord(key=key(topic="old"), value=None)]
    assert store.fetch(topic="read").offset == 1


def test_deleting_what_cannot_be_is_no_error() -> None:
    store = Store()
    store.pend(ONE, 1)
    draft = Draft(START_MS)
    store.offsets.delete("g", (TopicToFetch("t" * 40_000, (0,)),), reads=reads_nothing, draft=draft)
    assert not draft.decision().records


def test_the_offsets_of_deleted_topics_go_in_all_groups() -> None:
    store = Store()
    for group in ("g", "h"):
        for topic in ("gone", "kept"):
            store.commit(1, group=group, topic=topic)
    store.pend(ONE, 2, group="i", topic="gone")
    store.pend(ONE, 2, group="g", topic="gone")
    draft = Draft(START_MS)
    store.offsets.delete_topics(["gone", "never there"], draft=draft)
    assert len(store.take(draft)) == 3
    assert store.fetch(topic="gone").offset == -1
    assert store.fetch(topic="kept").offset == 1
    store.offsets.end_transaction(ONE, is_committed=True)
    assert store.fetch(topic="gone").offset == -1


def test_all_of_a_group_goes_and_nothing_of_another_that_begins_alike() -> None:
    store = Store()
    store.commit(1)
    store.commit(1, group="gg")
    store.pend(ONE, 2)
    store.pend(ONE, 2, partition=5)
    store.pend(ONE, 2, group="gg")
    draft = Draft(START_MS)
    store.offsets.delete_all("g", draft=draft)
    assert len(store.take(draft)) == 2
    assert not store.offsets.has_pending("g")
    assert store.offsets.has_pending("gg")
    assert store.fetch(group="gg").offset == 1


# --- expiry


def test_an_offset_expires_its_retention_time_after_the_later_of_commit_and_group() -> None:
    for since_ms, gone_at_ms in ((0, START_MS + 100), (START_MS + 50, START_MS + 150)):
        store = Store()
        store.commit(1)
        rule = ExpiryRule(since_ms, reads_nothing)
        early = Draft(gone_at_ms - 1)
        assert not store.offsets.expire("g", rule, retention_ms=100, draft=early)
        assert not early.decision().records
        late = Draft(gone_at_ms)
        assert store.offsets.expire("g", rule, retention_ms=100, draft=late)
        assert store.take(late)
        assert not store.offsets.has_group("g")


def test_an_offset_with_its_own_expiry_goes_by_that() -> None:
    store = Store()
    committed = CommittedOffset(Offset(1), LeaderEpoch(3), "", START_MS, expires_at_ms=START_MS + 5)
    store.offsets.replay(key(), write_offset_value(committed))
    rule = ExpiryRule(EVERYTHING_MS, reads_nothing)
    assert not store.offsets.expire("g", rule, retention_ms=1, draft=Draft(START_MS + 4))
    assert store.offsets.expire("g", rule, retention_ms=1, draft=Draft(START_MS + 5))


def test_topics_that_are_read_and_open_transactions_keep_their_offsets() -> None:
    store = Store()
    store.commit(1, topic="read")
    store.commit(1, topic="pending")
    store.commit(1, topic="old")
    store.pend(ONE, 2, topic="pending")
    draft = Draft(EVERYTHING_MS)
    rule = ExpiryRule(0, lambda topic: topic == "read")
    assert not store.offsets.expire("g", rule, retention_ms=1, draft=draft)
    assert [record.key for record in store.take(draft)] == [key(topic="old")]


def test_a_group_with_an_open_transaction_is_not_done() -> None:
    store = Store()
    store.pend(ONE, 2)
    assert not store.offsets.expire(
        "g", ExpiryRule(0, reads_nothing), retention_ms=1, draft=Draft(EVERYTHING_MS)
    )


# --- transactions


def test_an_offset_in_a_transaction_counts_when_it_is_committed() -> None:
    store = Store()
    store.commit(1)
    store.pend(ONE, 2)
    assert store.fetch().offset == 1
    assert type(store.fetch(stable=True).error) is UnstableOffsetCommit
    store.offsets.end_transaction(ONE, is_committed=True)
    assert store.fetch(stable=True).offset == 2


def test_an_offset_in_an_aborted_transaction_never_counts() -> None:
    store = Store()
    store.commit(1)
    store.pend(ONE, 2)
    store.offsets.end_transaction(ONE, is_committed=False)
    assert store.fetch(stable=True).offset == 1
    store.offsets.end_transaction(ONE, is_committed=True)
    assert store.fetch(stable=True).offset == 1


def test_a_later_commit_outlives_the_transaction_before_it() -> None:
    store = Store()
    store.pend(ONE, 2)
    store.commit(1)
    store.offsets.end_transaction(ONE, is_committed=True)
    assert store.fetch(stable=True).offset == 1


def test_of_two_transactions_the_later_record_wins_whichever_ends_first() -> None:
    for order in ((ONE, TWO), (TWO, ONE)):
        store = Store()
        store.pend(ONE, 1)
        store.pend(TWO, 2)
        for producer_id in order:
            store.offsets.end_transaction(producer_id, is_committed=True)
        assert store.fetch(stable=True).offset == 2


def test_a_record_repeated_in_a_transaction_takes_its_later_place() -> None:
    store = Store()
    store.pend(ONE, 1)
    store.pend(TWO, 2)
    store.pend(ONE, 3)
    store.offsets.end_transaction(ONE, is_committed=True)
    store.offsets.end_transaction(TWO, is_committed=True)
    assert store.fetch(stable=True).offset == 3


def test_a_tombstone_takes_what_is_pending_too() -> None:
    store = Store()
    store.pend(ONE, 2)
    draft = Draft(START_MS)
    store.offsets.delete("g", (TopicToFetch("t", (0,)),), reads=reads_nothing, draft=draft)
    assert store.take(draft)
    store.offsets.end_transaction(ONE, is_committed=True)
    assert store.fetch(stable=True).offset == -1
    assert not store.offsets._pending
