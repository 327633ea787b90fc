"""Kafka's records of share partitions: their bytes, and that whatever is written is read again."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.coordination.share.share_state import ShareKey, ShareState, StateBatch
from respool.coordination.share_states.share_state_records import (
    ShareSnapshot,
    ShareStateRecord,
    ShareStateRecordKey,
    ShareStateRecordKind,
    ShareUpdateRecord,
    read_share_state_key,
    read_share_state_value,
    write_share_snapshot,
    write_share_state_key,
    write_share_update,
)
from respool.model.ids import LeaderEpoch, Offset, TopicId

KEY = ShareKey("g", TopicId(UUID(int=0x0102)), 7)
SNAPSHOT, UPDATE = ShareStateRecordKind.SNAPSHOT, ShareStateRecordKind.UPDATE


def written(value: ShareStateRecord) -> tuple[ShareStateRecordKind, bytes]:
    if isinstance(value, ShareSnapshot):
        return SNAPSHOT, write_share_snapshot(value)
    return UPDATE, write_share_update(value)


# As Kafka's schemas say: value, bytes in hex.
AS_KAFKA: list[tuple[ShareStateRecord, str]] = [
    (
        ShareSnapshot(
            snapshot_epoch=1,
            created_at_ms=4,
            written_at_ms=5,
            state=ShareState(
                state_epoch=2,
                leader_epoch=LeaderEpoch(3),
                start_offset=Offset(10),
                batches=(StateBatch(10, 12, 2, 1),),
            ),
        ),
        (
            "0000 00000001 00000002 00000003 000000000000000a 0000000000000004 0000000000000005"
            "02 000000000000000a 000000000000000c 02 0001 00 00"
        ),
    ),
    (
        ShareUpdateRecord(
            snapshot_epoch=1,
            leader_epoch=LeaderEpoch(3),
            start_offset=Offset(-1),
            finished_count=6,
            batches=(),
        ),
        "0000 00000001 00000003 ffffffffffffffff 01 01 00 04 00000006",
    ),
]


@pytest.mark.parametrize(("value", "expected"), AS_KAFKA)
def test_values_have_kafkas_bytes(value: ShareStateRecord, expected: str) -> None:
    kind, data = written(value)
    assert data.hex() == expected.replace(" ", "")
    assert read_share_state_value(kind, data) == value


def test_keys_have_kafkas_bytes() -> None:
    data = write_share_state_key(UPDATE, KEY)
    assert data.hex() == "0001" + "000167" + "00000000000000000000000000000102" + "00000007"
    assert read_share_state_key(data) == ShareStateRecordKey(UPDATE, KEY)
    # A kind of a later release.
    assert read_share_state_key(b"\0\2") is None


def test_a_due_time_is_one_more_tag() -> None:
    value = ShareUpdateRecord(
        snapshot_epoch=0,
        leader_epoch=LeaderEpoch(0),
        start_offset=Offset(-1),
        finished_count=-1,
        batches=(StateBatch(1, 2, 0, 3, 9),),
    )
    kind, data = written(value)
    assert data[18:].hex() == (
        "02" + "0000000000000001" + "0000000000000002" + "00" + "0003"
        "01e80708" + "0000000000000009" + "00"
    )
    assert read_share_state_value(kind, data) == value


@st.composite
def batches(draw: st.DrawFn) -> tuple[StateBatch, ...]:
    edges = draw(st.lists(st.integers(0, 2**62), max_size=8, unique=True).map(sorted))
    return tuple(
        StateBatch(
            first,
            last,
            draw(st.sampled_from([0, 2, 3, 4])),
            draw(st.integers(0, 2**15 - 1)),
            draw(st.integers(-1, 2**60)),
        )
        for first, last in zip(edges[::2], edges[1::2], strict=False)
    )


@given(batches=batches(), start=st.integers(-1, 2**60), finished=st.integers(-1, 2**31 - 1))
def test_what_is_written_is_read_again(
    batches: tuple[StateBatch, ...], start: int, finished: int
) -> None:
    update = ShareUpdateRecord(
        snapshot_epoch=5,
        leader_epoch=LeaderEpoch(2),
        start_offset=Offset(start),
        finished_count=finished,
        batches=batches,
    )
    assert read_share_state_value(UPDATE, write_share_update(update)) == update


@pytest.mark.parametrize(("value", "expected"), AS_KAFKA)
def test_a_damaged_record_is_told_from_a_sound_one(value: ShareStateRecord, expected: str) -> None:
    del expected
    kind, data = written(value)
    for end in range(len(data)):
        with pytest.raises(CoordinatorRecordDamaged):
            read_share_state_value(kind, data[:end])
    with pytest.raises(CoordinatorRecordDamaged, match="version 1"):
        read_share_state_value(kind, b"\0\1" + data[2:])


@pytest.mark.parametrize(
    "found",
    [
        (StateBatch(5, 4, 0, 1),),
        (StateBatch(5, 9, 0, 1), StateBatch(9, 12, 0, 1)),
        (StateBatch(5, 9, 1, 1),),
        (StateBatch(5, 9, 5, 1),),
        (StateBatch(5, 9, 0, -1),),
    ],
)
def test_batches_that_cannot_be_are_damage(found: tuple[StateBatch, ...]) -> None:
    value = ShareUpdateRecord(
        snapshot_epoch=0,
        leader_epoch=LeaderEpoch(0),
        start_offset=Offset(0),
        finished_count=0,
        batches=found,
    )
    with pytest.raises(CoordinatorRecordDamaged):
        read_share_state_value(UPDATE, write_share_update(value))


@given(st.binary(max_size=60), st.sampled_from([SNAPSHOT, UPDATE]))
def test_any_bytes_are_a_record_or_damage(data: bytes, kind: ShareStateRecordKind) -> None:
    with suppress(CoordinatorRecordDamaged):
        read_share_state_value(kind, data)
