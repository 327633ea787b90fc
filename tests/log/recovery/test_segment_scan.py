"""A scan believes no byte: whatever is damaged, exactly the sound batches before it are found."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from log.log_world import StoredBatch, batch_of
from respool.log.recovery.segment_scan import READ_BYTES, SegmentScan
from respool.model.ids import LeaderEpoch, Offset
from respool.sim.disk.simulated_disk import SimDisk
from respool.sim.disk.simulated_files import SimLogFile

BASE = Offset(70)


def stored(*sizes: int) -> list[StoredBatch]:
    """Batches of two records that follow one another from `BASE` on."""
    batches, offset = [], BASE
    for size in sizes:
        batch = batch_of(1, 2, value=b"v" * size)
        batches.append(StoredBatch.of(batch, base_offset=offset, epoch=LeaderEpoch(3)))
        offset = batches[-1].header.next_offset
    return batches


def file_of(data: bytes) -> SimLogFile:
    file = SimDisk(Random(1)).open_log("a.log")
    file.append([data])
    return file


def scan(data: bytes) -> tuple[int, SegmentScan]:
    """How many batches were found, and the scan."""
    scan = SegmentScan(file_of(data), BASE)
    return len(list(scan)), scan


def test_a_sound_file_is_sound_to_its_end() -> None:
    batches = stored(1, 5000, READ_BYTES, 3, READ_BYTES // 2, READ_BYTES // 2, 1)
    data = b"".join(one.data for one in batches)
    found = SegmentScan(file_of(data), BASE)
    assert [batch.header for batch in found] == [one.header for one in batches]
    assert (found.position, found.next_offset, found.damage) == (len(data), BASE + 14, "")


def test_an_empty_file_is_sound() -> None:
    count, found = scan(b"")
    assert (count, found.position, found.next_offset, found.damage) == (0, 0, BASE, "")


@given(st.data())
def test_a_cut_file_ends_with_its_last_whole_batch(data: st.DataObject) -> None:
    batches = stored(1, 30, 700)
    whole = b"".join(one.data for one in batches)
    size = data.draw(st.integers(0, len(whole) - 1))
    ends = [0]
    for one in batches:
        ends.append(ends[-1] + len(one.data))
    count, found = scan(whole[:size])
    assert count == sum(end <= size for end in ends[1:])
    assert found.position == ends[count]
    assert bool(found.damage) == (size not in ends)


@given(st.data())
def test_no_changed_byte_goes_unnoticed(data: st.DataObject) -> None:
    batches = stored(1, 30, 100)
    whole = bytearray(b"".join(one.data for one in batches))
    at = data.draw(st.integers(0, len(whole) - 1))
    # The leader epoch is in no checksum: nothing can tell.
    begins = [0, len(batches[0].data), len(batches[0].data) + len(batches[1].data)]
    number = sum(begin <= at for begin in begins) - 1
    if 12 <= at - begins[number] < 16:
        return
    whole[at] ^= data.draw(st.integers(1, 255))
    count, found = scan(bytes(whole))
    assert count == number
    assert found.position == begins[number]
    assert found.damage


def test_zeros_are_no_batch() -> None:
    data = stored(9)[0].data
    count, found = scan(data + bytes(1000))
    assert (count, found.position, found.damage) == (1, len(data), "magic 0")


def test_a_sound_batch_with_another_offset_does_not_follow() -> None:
    first, second, third = stored(9, 9, 9)
    count, found = scan(first.data + third.data)
    assert (count, found.damage) == (1, f"base offset {third.base_offset}, expected {BASE + 2}")
    count, found = scan(first.data + second.data + second.data)
    assert (count, found.next_offset) == (2, BASE + 4)


def test_an_enormous_length_costs_no_memory() -> None:
    batch = bytearray(stored(9)[0].data)
    batch[8:12] = (2**31 - 1).to_bytes(4, "big")
    count, found = scan(bytes(batch))
    assert count == 0
    assert found.damage.startswith("length 2147483647 with")
