"""Kafka's records of share groups: their bytes, and that whatever is written is read again."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    read_share_key,
    read_share_value,
    write_share_key,
    write_share_value,
)
from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.model.ids import TopicId

TOPIC = TopicId(UUID(int=0x0102))
ID = "00000000000000000000000000000102"

# As Kafka's schemas say: kind, value, bytes in hex.
AS_KAFKA: list[tuple[ShareRecordKind, ShareRecordValue, str]] = [
    (
        ShareRecordKind.MEMBER,
        ShareMemberValue(None, "c", "/h", frozenset({"b", "a"})),
        "0000 00 0263 032f68 03 0261 0262 00",
    ),
    (ShareRecordKind.GROUP, ShareGroupValue(5, -2), "0000 00000005 fffffffffffffffe 00"),
    (ShareRecordKind.TARGET_EPOCH, ShareTargetEpochValue(5), "0000 00000005 00"),
    (
        ShareRecordKind.TARGET_EPOCH,
        ShareTargetEpochValue(5, 7),
        "0000 00000005 01 00 08 0000000000000007",
    ),
    (
        ShareRecordKind.TARGET,
        ShareTargetValue({TOPIC: frozenset({1, 0})}),
        f"0000 02 {ID} 03 00000000 00000001 00 00",
    ),
    (
        ShareRecordKind.CURRENT,
        ShareCurrentValue(3, 2, {TOPIC: frozenset({1})}),
        f"0000 00000003 00000002 00 02 {ID} 02 00000001 00 00",
    ),
    (
        ShareRecordKind.STATES,
        ShareStatesValue(initialized={TOPIC: frozenset({1})}, names=((TOPIC, "t"),)),
        f"0000 01 02 {ID} 0274 02 00000001 00 01 00",
    ),
]


@pytest.mark.parametrize(("kind", "value", "expected"), AS_KAFKA)
def test_values_have_kafkas_bytes(
    kind: ShareRecordKind, value: ShareRecordValue, expected: str
) -> None:
    assert write_share_value(value).hex() == expected.replace(" ", "")
    assert read_share_value(kind, bytes.fromhex(expected)) == value


def test_keys_have_kafkas_bytes() -> None:
    key = ShareRecordKey(ShareRecordKind.MEMBER, "g", "m")
    assert write_share_key(key).hex() == "000a" + "000167" + "00016d"
    group = ShareRecordKey(ShareRecordKind.STATES, "g")
    assert write_share_key(group).hex() == "000f" + "000167"
    for one in (key, group):
        assert read_share_key(write_share_key(one)) == one


def test_topics_to_delete_are_kafkas_with_the_partitions_as_one_more_tag() -> None:
    value = ShareStatesValue(deleting={TOPIC: frozenset({3})}, names=((TOPIC, "t"),))
    written = write_share_value(value)
    assert written.hex() == f"0000 01 01 02 {ID} 0274 01 e807 04 00000003 00".replace(" ", "")
    assert read_share_value(ShareRecordKind.STATES, written) == value


partitions = st.dictionaries(
    st.builds(TopicId, st.uuids()),
    st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4),
    max_size=3,
)


@given(initializing=partitions, initialized=partitions, deleting=partitions, name=st.text())
def test_what_is_written_is_read_again(
    initializing: dict[TopicId, frozenset[int]],
    initialized: dict[TopicId, frozenset[int]],
    deleting: dict[TopicId, frozenset[int]],
    name: str,
) -> None:
    names = dict.fromkeys([*initializing, *initialized, *deleting], name)
    value = ShareStatesValue(initializing, initialized, deleting, tuple(sorted(names.items())))
    assert read_share_value(ShareRecordKind.STATES, write_share_value(value)) == value


@pytest.mark.parametrize(("kind", "value", "expected"), AS_KAFKA)
def test_a_damaged_record_is_told_from_a_sound_one(
    kind: ShareRecordKind, value: ShareRecordValue, expected: str
) -> None:
    del value
    whole = bytes.fromhex(expected)
    for end in range(len(whole)):
        with pytest.raises(CoordinatorRecordDamaged):
            read_share_value(kind, whole[:end])
    with pytest.raises(CoordinatorRecordDamaged, match="version 1"):
        read_share_value(kind, b"\0\1" + whole[2:])
