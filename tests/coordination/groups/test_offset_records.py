"""Bytes are spelt out by hand from Kafka's schemas OffsetCommitKey and OffsetCommitValue."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.coordination.groups.offset_records import (
    CommittedOffset,
    check_offset_value,
    offset_key_prefix,
    read_offset_key,
    read_offset_times,
    read_offset_value,
    write_offset_value,
)
from respool.coordination.record_bytes import CoordinatorRecordDamaged, fits_a_string
from respool.model.ids import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TopicId

TOPIC_ID = TopicId(UUID("00112233-4455-6677-8899-aabbccddeeff"))
AT_MS = 0x0102030405060708
AT = "0102030405060708"


def value(text: str) -> bytes:
    return bytes.fromhex(text)


def test_a_key_is_group_topic_and_partition() -> None:
    key = offset_key_prefix("gr", "tö") + value("00000007")
    assert key == value("0001 0002 6772 0003 74c3b6 00000007")
    assert read_offset_key(key) == ("gr", "tö", 7)


def test_the_old_key_version_reads_the_same() -> None:
    assert read_offset_key(value("0000 0002 6772 0001 74 00000007")) == ("gr", "t", 7)


def test_a_value_without_topic_id_is_version_3_as_kafka_writes_it() -> None:
    committed = CommittedOffset(Offset(9), LeaderEpoch(4), "m", AT_MS)
    assert write_offset_value(committed) == value(f"0003 0000000000000009 00000004 0001 6d {AT}")


def test_a_value_with_topic_id_is_version_4_with_a_tag() -> None:
    committed = CommittedOffset(Offset(9), LeaderEpoch(4), "", AT_MS, topic_id=TOPIC_ID)
    tagged = f"01 00 10 {TOPIC_ID.hex}"
    assert write_offset_value(committed) == value(
        f"0004 0000000000000009 00000004 01 {AT} {tagged}"
    )


def test_a_value_that_expires_is_version_1_which_has_no_leader_epoch() -> None:
    committed = CommittedOffset(Offset(9), LeaderEpoch(4), "m", AT_MS, expires_at_ms=5)
    written = write_offset_value(committed)
    assert written == value(f"0001 0000000000000009 0001 6d {AT} 0000000000000005")
    assert read_offset_value(written) == committed._replace(leader_epoch=NO_LEADER_EPOCH)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"0000 0000000000000009 0001 6d {AT}",
            CommittedOffset(Offset(9), NO_LEADER_EPOCH, "m", AT_MS),
        ),
        (
            f"0002 0000000000000009 0000 {AT}",
            CommittedOffset(Offset(9), NO_LEADER_EPOCH, "", AT_MS),
        ),
        (
            f"0003 0000000000000009 00000002 0000 {AT}",
            CommittedOffset(Offset(9), LeaderEpoch(2), "", AT_MS),
        ),
        (
            f"0004 0000000000000009 00000002 02 6d {AT} 00",
            CommittedOffset(Offset(9), LeaderEpoch(2), "m", AT_MS),
        ),
        # A tag we do not know.
        (
            f"0004 0000000000000009 00000002 01 {AT} 01 05 01 ff",
            CommittedOffset(Offset(9), LeaderEpoch(2), "", AT_MS),
        ),
    ],
)
def test_all_versions_of_values_are_read(text: str, expected: CommittedOffset) -> None:
    check_offset_value(value(text))
    assert read_offset_value(value(text)) == expected
    assert read_offset_times(value(text)) == (AT_MS, -1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "truncated"),
        ("0005 0000000000000009", "version 5 is unknown"),
        ("ffff 0000000000000009", "version -1 is unknown"),
        (f"0003 0000000000000009 00000002 0001 {AT}", "truncated"),
        (f"0003 0000000000000009 00000002 0000 {AT} 00", "1 bytes too many"),
        (f"0003 0000000000000009 00000002 ffff {AT}", "null"),
        (f"0003 0000000000000009 00000002 0001 ff {AT}", "not UTF-8"),
        (f"0004 0000000000000009 00000002 01 {AT} 01 00 02 0000", "topic id of 2 bytes"),
        (f"0004 0000000000000009 00000002 ffffffffffff {AT}", "longer than 32 bits"),
    ],
)
def test_a_damaged_value_is_told_from_a_good_one(text: str, why: str) -> None:
    with pytest.raises(CoordinatorRecordDamaged, match=why):
        check_offset_value(value(text))
    with pytest.raises(CoordinatorRecordDamaged, match=why):
        read_offset_value(value(text))


@pytest.mark.parametrize("text", ["0001 0002 6772", "0001 0002 6772 0001 74 0000000700"])
def test_a_damaged_key_is_refused(text: str) -> None:
    with pytest.raises(CoordinatorRecordDamaged, match="key of a committed offset"):
        read_offset_key(value(text))


committed_offsets = st.builds(
    CommittedOffset,
    offset=st.integers(-1, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.sampled_from(["", "m", "ü" * 100]),
    committed_at_ms=st.integers(-1, 2**62),
    # What expires is version 1, which cannot say all the rest.
    expires_at_ms=st.just(NO_TIMESTAMP),
    topic_id=st.one_of(st.just(UUID(int=0)), st.uuids()),
)


@given(committed_offsets)
def test_what_is_written_reads_the_same(committed: CommittedOffset) -> None:
    written = write_offset_value(committed)
    check_offset_value(written)
    assert read_offset_value(written) == committed
    assert read_offset_times(written) == (committed.committed_at_ms, committed.expires_at_ms)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        check_offset_value(data)
    except CoordinatorRecordDamaged:
        return
    read_offset_value(data)


def test_a_text_fits_by_its_bytes_not_its_characters() -> None:
    assert fits_a_string("a" * 32_767)
    assert not fits_a_string("a" * 32_768)
    assert not fits_a_string("ü" * 16_384)
