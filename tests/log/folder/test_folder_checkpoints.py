"""Offsets in a file of the data folder: whole or not at all, and noticed when damaged."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.log.folder.folder_checkpoints import RECOVERY_POINT, OffsetCheckpoint, StoredOffsets
from respool.model.errors import CheckpointDamaged, DiskFailed
from respool.model.ids import Offset, TopicPartition
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_disk import SimDisk

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
DASHED = TopicPartition("a-b.c_d", 12)

OFFSETS = st.dictionaries(
    st.builds(
        TopicPartition, st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True), st.integers(0, 2**31)
    ),
    st.builds(Offset, st.integers(0, 2**63 - 1)),
    max_size=8,
)


def a_disk() -> SimDisk:
    return SimDisk(Random(1))


def a_checkpoint(disk: SimDisk) -> OffsetCheckpoint:
    return OffsetCheckpoint(disk, RECOVERY_POINT)


def test_without_a_file_there_are_no_offsets() -> None:
    assert a_checkpoint(a_disk()).read() == {}


def test_the_text_is_kafkas() -> None:
    disk = a_disk()
    a_checkpoint(disk).write({ORDERS_0: Offset(4711), DASHED: Offset(0)})
    assert disk.read_file(RECOVERY_POINT) == b"0\n2\norders 0 4711\na-b.c_d 12 0\n"


@given(OFFSETS)
def test_what_was_written_is_read(offsets: dict[TopicPartition, Offset]) -> None:
    disk = a_disk()
    a_checkpoint(disk).write(offsets)
    assert a_checkpoint(disk).read() == offsets


def test_a_write_survives_a_power_cut() -> None:
    disk = a_disk()
    a_checkpoint(disk).write({ORDERS_0: Offset(7)})
    disk.crash()
    assert a_checkpoint(disk.reopen()).read() == {ORDERS_0: 7}


def test_an_interrupted_write_leaves_the_old_offsets() -> None:
    disk = a_disk()
    a_checkpoint(disk).write({ORDERS_0: Offset(7)})
    disk.faults.cut_power_after(0)
    with pytest.raises(ProcessGone):
        a_checkpoint(disk).write({ORDERS_0: Offset(8)})
    disk.crash()
    assert a_checkpoint(disk.reopen()).read() == {ORDERS_0: 7}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "version ''"),
        (b"1\n0\n", "version '1'"),
        (b"0\n2\norders 0 5\n", "2 lines announced, 1 found"),
        (b"0\n1\norders 0 5\norders 1 5\n", "1 lines announced, 2 found"),
        (b"0\n1\norders 0 5", "incomplete"),
        (b"0\n1\norders 0\n", "2 words, expected 3"),
        (b"0\n1\norders 0 5 5\n", "4 words, expected 3"),
        (b"0\n1\norders x 5\n", "'x' is not a number"),
        (b"0\n1\norders 0 -5\n", "'-5' is not a number"),
        (b"0\nmany\norders 0 5\n", "'many' is not a number"),
        (b"0\n1\n.. 0 5\n", r"cannot be '\.\.'"),
        (b"0\n1\na/b 0 5\n", "characters"),
        (b"0\n2\norders 0 5\norders 0 6\n", "orders-0 appears twice"),
        (b"0\n1\norders 0 5\n\0\0\0\0", "incomplete"),
        (b"0\n1\n\xff 0 5\n", "0xff at 4 is not text"),
    ],
)
def test_a_damaged_file_is_noticed_and_says_why(text: bytes, why: str) -> None:
    disk = a_disk()
    disk.replace_file(RECOVERY_POINT, text)
    with pytest.raises(CheckpointDamaged, match=why) as caught:
        a_checkpoint(disk).read()
    assert RECOVERY_POINT in str(caught.value)


@given(st.binary(max_size=60))
def test_garbage_is_damage_and_nothing_else(garbage: bytes) -> None:
    disk = a_disk()
    disk.replace_file(RECOVERY_POINT, garbage)
    try:
        offsets = a_checkpoint(disk).read()
    except CheckpointDamaged:
        return
    a_checkpoint(disk).write(offsets)
    assert a_checkpoint(disk).read() == offsets


# Kept offsets


def test_kept_offsets_change_one_partition_and_leave_the_others() -> None:
    disk = a_disk()
    kept = StoredOffsets.read(a_checkpoint(disk))
    kept.update({ORDERS_0: Offset(5), ORDERS_1: Offset(6)})
    kept.update({ORDERS_0: Offset(7)})
    assert a_checkpoint(disk).read() == {ORDERS_0: 7, ORDERS_1: 6}
    kept.forget([ORDERS_1])
    assert a_checkpoint(disk).read() == {ORDERS_0: 7}
    assert (kept.get(ORDERS_0), kept.get(ORDERS_1)) == (7, 0)
    assert list(kept) == [ORDERS_0]
    assert ORDERS_1 not in kept


def test_nothing_is_written_when_nothing_changed() -> None:
    disk = a_disk()
    kept = StoredOffsets.read(a_checkpoint(disk))
    kept.update({ORDERS_0: Offset(5)})
    written = disk.counters.replaced_files
    kept.update({ORDERS_0: Offset(5)})
    kept.forget([ORDERS_1])
    assert disk.counters.replaced_files == written


def test_a_damaged_file_is_replaced_by_the_next_change() -> None:
    disk = a_disk()
    disk.replace_file(RECOVERY_POINT, b"rubbish")
    kept = StoredOffsets(a_checkpoint(disk))
    kept.update({ORDERS_0: Offset(5)})
    assert a_checkpoint(disk).read() == {ORDERS_0: 5}


def test_after_a_failed_write_the_old_offsets_hold_and_the_next_change_writes_again() -> None:
    disk = a_disk()
    kept = StoredOffsets.read(a_checkpoint(disk))
    kept.update({ORDERS_0: Offset(5)})
    disk.faults.fail("replace")
    with pytest.raises(DiskFailed):
        kept.update({ORDERS_0: Offset(9)})
    assert kept.get(ORDERS_0) == 5
    # The failed write may have come through, with an offset that is no longer true.
    disk.replace_file(RECOVERY_POINT, b"0\n1\norders 0 9\n")
    kept.update({ORDERS_0: Offset(5)})
    assert a_checkpoint(disk).read() == {ORDERS_0: 5}


def test_what_a_failed_write_may_have_said_is_forgotten_for_sure() -> None:
    disk = a_disk()
    kept = StoredOffsets.read(a_checkpoint(disk))
    disk.faults.fail("replace")
    with pytest.raises(DiskFailed):
        kept.update({ORDERS_0: Offset(9)})
    assert ORDERS_0 not in kept
    # It came through all the same.
    disk.replace_file(RECOVERY_POINT, b"0\n1\norders 0 9\n")
    kept.forget([ORDERS_0])
    assert a_checkpoint(disk).read() == {}


def test_what_is_forgotten_soon_is_gone_at_once_and_in_the_file_with_the_next_change() -> None:
    disk = a_disk()
    kept = StoredOffsets.read(a_checkpoint(disk))
    kept.update({ORDERS_0: Offset(5), ORDERS_1: Offset(6)})
    kept.forget_soon([ORDERS_0])
    assert ORDERS_0 not in kept
    # Who forgets another does not care.
    kept.forget([DASHED])
    assert a_checkpoint(disk).read() == {ORDERS_0: 5, ORDERS_1: 6}
    # Whoever must be sure asks again.
    kept.forget([ORDERS_0])
    assert a_checkpoint(disk).read() == {ORDERS_1: 6}
    kept.forget_soon([ORDERS_1])
    kept.update({})
    assert a_checkpoint(disk).read() == {}
