from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.compaction_world import CompactionWorld
from log.log_world import EXPIRATION_MS, FOLDER, FUZZ, SMALL, LogWorld, batch_of
from log.tail_check import check_tail
from respool.log import log_tail
from respool.log.log_tail import OVERHEAD_BYTES, LogTail, TailMemory
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.errors import DiskFull
from respool.model.ids import LeaderEpoch, Offset
from respool.records.batch import RecordBatch
from respool.records.build import NewRecord
from respool.sim.disk.simulated_disk import SimDisk

EVERYTHING = 10**9


def open_log(tails: TailMemory, folder: str = FOLDER, disk: SimDisk | None = None) -> PartitionLog:
    return PartitionLog.open(
        disk=disk or SimDisk(Random(1)),
        folder=folder,
        config=SMALL,
        now_ms=1,
        log_start=Offset(0),
        recovery_point=Offset(0),
        clean=False,
        producer_expiration_ms=EXPIRATION_MS,
        tails=tails,
    )


def append(log: PartitionLog, count: int, *, size: int = 60, epoch: int = 0) -> None:
    for number in range(count):
        batch = batch_of(number, number, value=b"v" * size)
        log.append(batch, leader_epoch=LeaderEpoch(epoch), now_ms=1)


def read(log: PartitionLog, offset: int, **limits: int | bool) -> bytes | None:
    tail = log.read_tail(
        ReadSpec(
            Offset(offset),
            max_offset=Offset(limits.get("max_offset", log.log_end)),
            bytes_max=limits.get("bytes_max", EVERYTHING),
            at_least_one=bool(limits.get("at_least_one", True)),
        )
    )
    return None if tail is None else b"".join(tail.buffers)


def stored(log: PartitionLog, begin: int, end: int) -> bytes:
    """The batches there, from the files."""
    parts = []
    while begin < end:
        data = log.read(ReadSpec(Offset(begin), max_offset=Offset(end), bytes_max=1))
        parts.append(data)
        begin += 2
    return b"".join(parts)


def test_what_was_just_appended_is_read_without_the_disk() -> None:
    disk = SimDisk(Random(1))
    log = open_log(TailMemory(EVERYTHING), disk=disk)
    append(log, 3, epoch=7)
    reads = disk.counters.reads
    content = read(log, 2)
    assert disk.counters.reads == reads
    # With the offsets and the epoch that the leader gave them.
    assert content == stored(log, 2, 6)


def test_a_batch_is_handed_out_as_the_very_bytes_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "BATCH_APART_BYTES_MIN", 1)
    log = open_log(TailMemory(EVERYTHING))
    batch = batch_of(1, value=b"v" * 500)
    log.append(batch, leader_epoch=LeaderEpoch(0), now_ms=1)
    tail = log.read_tail(ReadSpec(Offset(0), max_offset=Offset(1), bytes_max=EVERYTHING))
    assert tail is not None
    rest = tail.buffers[1]
    assert isinstance(rest, memoryview)
    assert rest.obj is batch.data
    assert b"".join(tail.buffers) == stored(log, 0, 1)


def test_small_batches_are_put_together() -> None:
    log = open_log(TailMemory(EVERYTHING))
    append(log, 5)
    tail = log.read_tail(ReadSpec(Offset(0), max_offset=Offset(10), bytes_max=EVERYTHING))
    assert tail is not None
    assert len(tail.buffers) == 1


def test_a_view_of_bytes_that_may_change_is_not_kept() -> None:
    log = open_log(TailMemory(EVERYTHING))
    append(log, 1)
    batch = batch_of(1, 1)
    view = RecordBatch(batch.header, memoryview(bytearray(batch.data)))
    log.append(view, leader_epoch=LeaderEpoch(0), now_ms=1)
    assert read(log, 0) is None
    assert read(log, 2) is None
    append(log, 1)
    assert read(log, 4) == stored(log, 4, 6)


def test_nothing_is_shown_of_a_batch_that_ends_beyond_what_the_reader_may_see() -> None:
    log = open_log(TailMemory(EVERYTHING))
    append(log, 3)
    assert read(log, 0, max_offset=4) == stored(log, 0, 4)
    assert read(log, 0, max_offset=3) == stored(log, 0, 2)
    assert read(log, 2, max_offset=3) == b""
    assert read(log, 4, max_offset=4) == b""


def test_a_read_ends_with_the_last_batch_that_fits_and_has_the_first_if_it_must() -> None:
    log = open_log(TailMemory(EVERYTHING))
    append(log, 3)
    size = len(stored(log, 0, 2))
    assert read(log, 0, bytes_max=2 * size) == stored(log, 0, 4)
    assert read(log, 0, bytes_max=2 * size - 1) == stored(log, 0, 2)
    assert read(log, 0, bytes_max=1) == stored(log, 0, 2)
    assert read(log, 0, bytes_max=1, at_least_one=False) == b""


def test_an_offset_inside_a_batch_gets_the_whole_batch() -> None:
    log = open_log(TailMemory(EVERYTHING))
    append(log, 2)
    assert read(log, 3) == stored(log, 2, 4)


def test_at_the_end_and_beyond_the_log_itself_is_asked() -> None:
    log = open_log(TailMemory(EVERYTHING))
    assert read(log, 0) is None
    append(log, 1)
    assert read(log, 2) is None
    assert read(log, 3) is None


def test_deleted_records_are_not_read_from_memory() -> None:
    log = open_log(TailMemory(EVERYTHING))
    append(log, 3)
    log.raise_log_start(Offset(2))
    assert read(log, 0) is None
    assert read(log, 2) == stored(log, 2, 6)


def test_a_batch_that_could_not_be_written_is_not_in_the_tail() -> None:
    disk = SimDisk(Random(1))
    log = open_log(TailMemory(EVERYTHING), disk=disk)
    append(log, 1)
    disk.faults.capacity_bytes = 0
    with pytest.raises(DiskFull):
        append(log, 1)
    assert read(log, 0) == stored(log, 0, 2)
    disk.faults.capacity_bytes = None
    append(log, 1, size=90)
    assert read(log, 2) == stored(log, 2, 4)


def test_what_was_cut_off_is_not_read_any_more() -> None:
    log = open_log(TailMemory(EVERYTHING))
    append(log, 4)
    log.truncate_to(Offset(4))
    append(log, 1, size=10, epoch=3)
    assert read(log, 2) is None
    assert read(log, 4) == stored(log, 4, 6)
    log.truncate_fully_and_start_at(Offset(4))
    append(log, 1, size=20, epoch=4)
    assert read(log, 4) == stored(log, 4, 6)


def test_what_a_leader_sent_ends_the_tail() -> None:
    leader, follower = open_log(TailMemory(EVERYTHING)), open_log(TailMemory(EVERYTHING))
    append(leader, 2)
    append(follower, 1)
    follower.append_fetched(stored(leader, 2, 4), now_ms=1)
    assert read(follower, 0) is None
    assert read(follower, 2) is None
    append(follower, 1, epoch=1)
    assert read(follower, 4) == stored(follower, 4, 6)


def test_a_log_that_is_closed_or_deleted_lets_go_of_its_tail() -> None:
    for let_go in (PartitionLog.close, PartitionLog.delete):
        log = open_log(TailMemory(EVERYTHING))
        append(log, 2)
        let_go(log)
        assert read(log, 0) is None


def test_compaction_ends_the_tail() -> None:
    world = CompactionWorld.new()
    for number in range(30):
        world.append(NewRecord(key=b"key", value=b"%d" % number, timestamp_ms=number))
    world.roll()
    world.append(NewRecord(key=b"key", value=b"last", timestamp_ms=40))
    world.sync()
    assert check_tail(world.log) > 0
    assert world.compact()
    assert check_tail(world.log) == 0


def test_the_oldest_batch_of_all_logs_goes_first() -> None:
    disk = SimDisk(Random(1))
    cost = len(batch_of(0, 0, value=b"v" * 60).data) + OVERHEAD_BYTES
    tails = TailMemory(3 * cost)
    one, other = open_log(tails, "one-0", disk), open_log(tails, "other-0", disk)
    append(one, 1)
    append(other, 2)
    assert read(one, 0) is not None
    append(other, 1)
    assert read(one, 0) is None
    assert read(other, 0) == stored(other, 0, 6)
    append(one, 1)
    assert read(other, 0) is None
    assert read(other, 2) == stored(other, 2, 6)
    assert read(one, 2) == stored(one, 2, 4)


@pytest.mark.parametrize("bytes_max", [0, 1, 700])
def test_a_batch_larger_than_all_the_room_is_not_kept_nor_are_those_before_it(
    bytes_max: int,
) -> None:
    log = open_log(TailMemory(bytes_max))
    append(log, 2, size=5)
    append(log, 1, size=900)
    assert read(log, 0) is None
    assert read(log, 4) is None


@settings(max_examples=300 if FUZZ else 60, deadline=None)
@given(data=st.data(), bytes_max=st.integers(0, 8_000))
def test_tails_never_hold_more_than_their_room(data: st.DataObject, bytes_max: int) -> None:
    tails = TailMemory(bytes_max)
    logs = [LogTail(tails) for _ in range(3)]
    ends = [0, 0, 0]
    kept: list[tuple[int, int, int]] = []
    for _ in range(data.draw(st.integers(1, 40))):
        index = data.draw(st.integers(0, 2))
        if data.draw(st.integers(0, 9)) == 0:
            logs[index].clear()
            continue
        size, end = data.draw(st.integers(61, 2_000)), ends[index]
        rest = memoryview(bytes(size - 16))
        logs[index].add(
            bytes(16), rest, base_offset=Offset(end), next_offset=Offset(end + 1), size=size
        )
        ends[index] += 1
        kept.append((index, end, size))
        held = [
            cost
            for index, offset, size in kept
            if (
                cost := logs[index].read(
                    ReadSpec(Offset(offset), max_offset=Offset(offset + 1), bytes_max=1)
                )
            )
            is not None
        ]
        assert sum(len(one) + OVERHEAD_BYTES for one in held) <= bytes_max


def test_a_story_of_many_batches_is_read_from_memory_as_from_the_files() -> None:
    world = LogWorld.new()
    world.fill(40)
    assert check_tail(world.log) > 2
    world.log.roll_if_due(world.now_ms + 10**9)
    world.fill(3)
    world.check()
    world.truncate_to(Offset(world.log_end - 1))
    assert check_tail(world.log) == 0
    world.fill(2)
    world.lead()
    world.fill(2)
    assert check_tail(world.log) == 4
