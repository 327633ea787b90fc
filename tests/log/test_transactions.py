"""Transactions in a log: what readers of committed records see, and what is still so after a stop or a power cut."""

import dataclasses
from collections.abc import Callable

import pytest

from log.transaction_world import COMPACTED, EPOCH, FOLDER, KEPT, TransactionWorld
from respool.broker.fetch.partition_read import aborted_among
from respool.log.partition_log import AbortedTransaction, ReadSpec
from respool.model.coordinator_errors import InvalidTransactionState, TransactionCoordinatorFenced
from respool.model.errors import (
    DiskFailed,
    DiskFull,
    HandlesExhausted,
    InvalidProducerEpoch,
    OffsetOutOfRange,
)
from respool.model.ids import Offset
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker
from respool.sim.disk.disk_faults import ProcessGone

ADA, BOB = 7, 8


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld.new()


def marker(
    producer: int = ADA, *, epoch: int = 0, coordinator_epoch: int = 0, is_commit: bool = True
) -> EndTransactionMarker:
    return EndTransactionMarker(
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=is_commit,
    )


def batch(producer: int = ADA, *, epoch: int = 0, sequence: int = 0) -> RecordBatch:
    data = build_batch(
        [NewRecord(key=b"k", value=b"v", timestamp_ms=5)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    return RecordBatch(read_header(data), data)


def end(world: TransactionWorld, one: EndTransactionMarker, *, newer: bool = False) -> None:
    world.log.append_marker(one, leader_epoch=EPOCH, now_ms=world.now_ms, needs_newer_epoch=newer)


def aborted(world: TransactionWorld, begin: int, end: int) -> list[AbortedTransaction]:
    return world.log.aborted_in(Offset(begin), Offset(end))


# -- the last stable offset --------------------------------------------------------------------------------------------


def test_without_transactions_readers_of_committed_records_go_to_the_high_watermark(
    world: TransactionWorld,
) -> None:
    world.write(-1, "a", "b")
    assert world.log.last_stable_offset(Offset(1)) == 1
    assert world.log.last_stable_offset(Offset(2)) == 2


def test_an_open_transaction_holds_them_back_until_its_end_is_committed(
    world: TransactionWorld,
) -> None:
    world.write(-1, "a")
    world.write(ADA, "a", "b")
    world.sync()
    assert world.last_stable_offset == 1
    world.end(ADA, is_commit=True)
    # It may still be lost.
    assert world.last_stable_offset == 1
    world.sync()
    assert world.last_stable_offset == world.high_watermark == 4


def test_the_first_transaction_that_is_open_counts_however_they_overlap(
    world: TransactionWorld,
) -> None:
    world.write(ADA, "a")
    world.write(BOB, "b")
    world.write(ADA, "a")
    world.sync()
    assert world.last_stable_offset == 0
    world.end(ADA, is_commit=False)
    world.sync()
    assert world.last_stable_offset == 1
    world.end(BOB, is_commit=True)
    world.sync()
    assert world.last_stable_offset == 5


def test_an_open_transaction_is_open_after_a_stop_and_after_a_crash(
    world: TransactionWorld,
) -> None:
    world.write(-1, "a")
    world.write(ADA, "a")
    world.roll()
    world.write(-1, "b")
    world.sync()
    for restart in (world.stop_and_start, world.kill_and_start, world.crash_and_start):
        restart()
        assert world.last_stable_offset == 1
        # It goes on without being verified again.
        assert world.log.begin_verification(batch(sequence=1).header) is None
        assert world.log.begin_verification(batch(epoch=1).header) is not None


def test_a_recovery_keeps_in_mind_only_what_is_open(world: TransactionWorld) -> None:
    for _ in range(50):
        world.write(ADA, "a")
        world.end(ADA, is_commit=True)
    world.write(BOB, "b")
    world.disk.kill()
    world.disk = world.disk.reopen()
    world.open(clean=False)
    # A segment may hold millions of ends: not even until the broker says that they are committed.
    transactions = world.log._parts.producers.transactions
    assert transactions.markers_before(world.log.log_end) == []
    assert transactions.first_unstable == 100


def test_deleting_records_of_an_open_transaction_moves_readers_on(world: TransactionWorld) -> None:
    world.write(ADA, "a")
    world.write(-1, "b", "c")
    world.sync()
    assert world.last_stable_offset == 0
    world.delete_records(Offset(2))
    assert world.last_stable_offset == 2
    world.write(ADA, "a")
    world.end(ADA, is_commit=False)
    world.sync()
    assert world.last_stable_offset == 5
    assert aborted(world, 2, 5) == [AbortedTransaction(ADA, Offset(0), Offset(4), Offset(5))]
    world.check()


def test_a_truncation_opens_again_what_it_has_cut_the_end_off(world: TransactionWorld) -> None:
    world.write(ADA, "a")
    world.sync()
    world.end(ADA, is_commit=False)
    world.write(BOB, "b")
    assert world.log.has_aborted_from(Offset(0))
    world.log.truncate_to(Offset(1))
    del world.history[1:]
    assert not world.log.has_aborted_from(Offset(0))
    assert world.log.begin_verification(batch(sequence=1).header) is None
    world.check()
    world.end(ADA, is_commit=True)
    world.sync()
    world.check()
    assert world.last_stable_offset == 2


def test_a_segment_that_was_cut_off_leaves_no_index_to_the_next_of_its_name(
    world: TransactionWorld,
) -> None:
    world.write(-1, "a")
    for is_commit in (False, True):
        world.roll()
        world.write(ADA, "a")
        world.end(ADA, is_commit=is_commit)
        if not is_commit:
            world.log.truncate_to(Offset(0))
            world.history.clear()
            world.write(-1, "b")
    world.sync()
    world.stop_and_start()
    assert not world.log.has_aborted_from(Offset(0))


def test_a_truncation_forgets_no_end_that_is_not_committed(world: TransactionWorld) -> None:
    """The marker stays and is not committed yet: whoever read before the cut was told to stop before it."""
    world.write(ADA, "a")
    world.sync()
    world.end(ADA, is_commit=True)
    world.write(-1, "b")
    world.log.truncate_to(Offset(2))
    del world.history[2:]
    assert world.log.last_stable_offset(Offset(1)) == 0
    world.log.on_high_watermark(Offset(2))
    assert world.log.last_stable_offset(Offset(2)) == 2


# -- who may write -----------------------------------------------------------------------------------------------------


def test_the_first_batch_of_a_transaction_needs_a_guard(world: TransactionWorld) -> None:
    def append(one: RecordBatch, guard: object = None) -> bool:
        appended = world.log.append(one, leader_epoch=EPOCH, now_ms=0, guard=guard)  # type: ignore[arg-type]
        return not appended.is_duplicate

    with pytest.raises(InvalidTransactionState, match="no open transaction"):
        append(batch())
    assert world.log.log_end == 0
    guard = world.log.begin_verification(batch().header)
    assert append(batch(), guard)
    # The others need none, and the first is recognised without.
    assert append(batch(sequence=1))
    assert not append(batch())
    end(world, marker())
    assert not append(batch(sequence=1))
    with pytest.raises(InvalidTransactionState):
        append(batch(sequence=2), guard)


def test_a_guard_from_before_a_transactions_end_is_void(world: TransactionWorld) -> None:
    """1. A batch is verified and delayed.   2. Its transaction is aborted.   3. It arrives within the next one."""
    late = world.log.begin_verification(batch().header)
    assert late is not None
    end(world, marker(is_commit=False))
    again = world.log.begin_verification(batch().header)
    assert again is not late
    before = world.log.log_end
    with pytest.raises(InvalidTransactionState):
        world.log.append(batch(), leader_epoch=EPOCH, now_ms=0, guard=late)
    assert world.log.log_end == before
    world.log.append(batch(), leader_epoch=EPOCH, now_ms=0, guard=again)


def test_a_marker_is_fenced_by_the_producers_epoch_and_the_coordinators(
    world: TransactionWorld,
) -> None:
    end(world, marker(epoch=3, coordinator_epoch=5))
    before = world.log.log_end
    with pytest.raises(InvalidProducerEpoch):
        end(world, marker(epoch=2, coordinator_epoch=5))
    with pytest.raises(TransactionCoordinatorFenced):
        end(world, marker(epoch=3, coordinator_epoch=4))
    assert world.log.log_end == before
    # The same one again may come, and may be kept from it.
    end(world, marker(epoch=3, coordinator_epoch=5))
    with pytest.raises(InvalidProducerEpoch):
        end(world, marker(epoch=3, coordinator_epoch=5), newer=True)
    end(world, marker(epoch=4, coordinator_epoch=5), newer=True)


def test_fencing_outlives_a_stop_and_a_crash(world: TransactionWorld) -> None:
    end(world, marker(epoch=3, coordinator_epoch=5))
    world.history = []
    for clean in (True, False):
        if clean:
            world.log.close()
        else:
            world.sync()
            world.disk.crash()
        world.disk = world.disk.reopen()
        world.open(clean=clean)
        with pytest.raises(InvalidProducerEpoch):
            end(world, marker(epoch=2, coordinator_epoch=5))
        with pytest.raises(TransactionCoordinatorFenced):
            end(world, marker(epoch=3, coordinator_epoch=4))


def test_an_end_with_a_newer_epoch_ends_the_older_ones_transaction(world: TransactionWorld) -> None:
    world.write(ADA, "a")
    world.end(ADA, is_commit=False, bump=True)
    world.sync()
    assert world.last_stable_offset == 2
    assert [one.producer_id for one in aborted(world, 0, 2)] == [ADA]
    with pytest.raises(InvalidProducerEpoch):
        world.log.append(batch(sequence=1), leader_epoch=EPOCH, now_ms=0)


# -- the index of aborted transactions ---------------------------------------------------------------------------------


def test_an_aborted_transaction_is_told_of_wherever_it_reaches(world: TransactionWorld) -> None:
    world.write(-1, "x")
    world.write(ADA, "a")
    world.write(BOB, "b")
    world.end(BOB, is_commit=True)
    world.end(ADA, is_commit=False)
    world.write(-1, "y")
    world.sync()
    ada = AbortedTransaction(ADA, Offset(1), Offset(4), Offset(5))
    assert aborted(world, 0, 1) == []
    assert aborted(world, 0, 2) == aborted(world, 4, 5) == aborted(world, 2, 4) == [ada]
    assert aborted(world, 5, 6) == []


def test_the_file_is_kafkas_and_there_is_none_without_need(world: TransactionWorld) -> None:
    path = f"{FOLDER}/{0:020d}.txnindex"
    world.write(ADA, "a")
    world.end(ADA, is_commit=True)
    # Nothing was written, so there is nothing to tell.
    world.end(BOB, is_commit=False)
    assert not world.disk.exists(path)
    world.write(BOB, "b")
    world.write(ADA, "c")
    world.end(ADA, is_commit=False)
    expected = b"".join(
        number.to_bytes(size, "big") for number, size in [(0, 2), (ADA, 8), (4, 8), (5, 8), (3, 8)]
    )
    assert world.disk.read_file(path) == expected


def test_a_transaction_over_many_segments_is_in_the_one_with_its_end(
    world: TransactionWorld,
) -> None:
    world.write(ADA, "a")
    world.roll()
    world.write(ADA, "b")
    world.roll()
    world.end(ADA, is_commit=False)
    world.sync()
    names = [one for one in world.disk.list_folder(FOLDER) if one.endswith(".txnindex")]
    assert names == [f"{2:020d}.txnindex"]
    for restart in (world.stop_and_start, world.kill_and_start, world.crash_and_start):
        restart()
        assert aborted(world, 0, 3) == [AbortedTransaction(ADA, Offset(0), Offset(2), Offset(3))]


def test_an_index_that_a_crash_left_wrong_is_made_anew(world: TransactionWorld) -> None:
    world.write(ADA, "a")
    world.end(ADA, is_commit=False)
    world.write(BOB, "a")
    world.end(BOB, is_commit=True)
    world.sync()
    path = f"{FOLDER}/{0:020d}.txnindex"
    content = world.disk.read_file(path)
    for wrong in (b"", b"nonsense", bytes(34 * 3)):
        world.disk.kill()
        world.disk = world.disk.reopen()
        world.disk.replace_file(path, wrong)
        world.kill_and_start()
        assert world.disk.read_file(path) == content
    world.disk.delete(path)
    world.kill_and_start()
    assert world.disk.read_file(path) == content


def test_a_clean_stop_in_the_middle_of_a_segment_hides_no_abort_from_a_recovery(
    world: TransactionWorld,
) -> None:
    """The snapshot of the stop knows nothing of transactions that ended before it, in the same segment."""
    world.write(ADA, "a")
    world.end(ADA, is_commit=False)
    world.stop_and_start()
    world.write(-1, "b")
    world.sync()
    world.crash_and_start()
    assert [one.producer_id for one in aborted(world, 0, 3)] == [ADA]


@pytest.mark.parametrize("path", ["*.txnindex", "*.log"])
def test_an_abort_that_cannot_be_written_leaves_all_as_it_was(
    world: TransactionWorld, path: str
) -> None:
    world.write(ADA, "a")
    world.sync()
    world.disk.faults.fail("append", path=path)
    with pytest.raises(DiskFailed):
        world.end(ADA, is_commit=False)
    assert not world.log.has_aborted_from(Offset(0))
    world.check()
    world.end(ADA, is_commit=True)
    world.sync()
    assert aborted(world, 0, 2) == []
    world.check()


def test_an_abort_on_a_full_disk_is_refused_and_goes_through_later(world: TransactionWorld) -> None:
    world.write(ADA, "a")
    world.sync()
    used = sum(world.disk.size(f"{FOLDER}/{name}") for name in world.disk.list_folder(FOLDER))
    # Room for the entry, and not for the marker.
    world.disk.faults.capacity_bytes = used + 40
    with pytest.raises(DiskFull):
        world.end(ADA, is_commit=False)
    world.check()
    world.disk.faults.capacity_bytes = None
    world.end(ADA, is_commit=False)
    world.sync()
    world.check()
    assert len(aborted(world, 0, 2)) == 1


def test_many_aborts_are_searched_from_the_right_place(world: TransactionWorld) -> None:
    for _ in range(300):
        world.write(ADA, "a")
        world.end(ADA, is_commit=False)
    world.sync()
    assert len(aborted(world, 0, 600)) == 300
    assert [one.first_offset for one in aborted(world, 501, 506)] == [500, 502, 504]
    world.stop_and_start()
    assert [one.first_offset for one in aborted(world, 501, 506)] == [500, 502, 504]
    world.check_reader(Offset(123), bytes_max=1000)


def test_an_index_that_nobody_has_open_when_its_segment_is_finished_is_on_the_disk_all_the_same(
    world: TransactionWorld,
) -> None:
    world.write(ADA, "a")
    world.end(ADA, is_commit=False)
    world.sync()
    world.disk.faults.fail("open", error=HandlesExhausted, times=None)
    with pytest.raises(HandlesExhausted):
        world.roll()
    world.disk.faults.heal()
    # The segment is finished and goes on. Idle, it is let go of.
    for _ in range(2):
        world.apply_retention()
    assert not world.log._parts.segments.active.is_open
    world.roll()
    world.write(-1, "b")
    world.sync()
    world.write_checkpoint()
    world.crash_and_start()
    assert aborted(world, 0, 3) == [AbortedTransaction(ADA, Offset(0), Offset(1), Offset(2))]


# -- what comes and goes -----------------------------------------------------------------------------------------------


def test_retention_removes_nothing_that_an_open_transaction_began() -> None:
    world = TransactionWorld.new(0, dataclasses.replace(KEPT, retention_bytes=0))
    world.write(-1, "x")
    world.roll()
    world.write(ADA, "a")
    world.roll()
    world.write(-1, "y")
    world.roll()
    world.sync()
    world.apply_retention()
    assert world.log.log_start == 1
    world.end(ADA, is_commit=False)
    world.sync()
    world.apply_retention()
    assert world.log.log_start == world.log_end == 4


def test_a_segments_index_goes_with_it() -> None:
    world = TransactionWorld.new(0, dataclasses.replace(KEPT, retention_bytes=0))
    world.write(ADA, "a")
    world.end(ADA, is_commit=False)
    world.roll()
    world.sync()
    old = world.log._parts.segments.first
    old.release()
    world.apply_retention()
    world.delete_removed()
    assert not [one for one in world.disk.list_folder(FOLDER) if ".txnindex" in one]
    # Whoever still has the segment goes on reading.
    assert old.aborted.find(Offset(0), Offset(2))[0] != []


def every_power_cut(
    make: Callable[[int], TransactionWorld], story: Callable[[TransactionWorld], None], seeds: int
) -> int:
    """Tell the story with the power going at each of its changes to the disk, and look at what is left."""
    cuts = 0
    for seed in range(seeds):
        for changes in range(10_000):
            world = make(seed)
            world.disk.faults.cut_power_after(changes)
            try:
                story(world)
            except ProcessGone:
                world.crash_and_start()
                cuts += 1
            else:
                break
    return cuts


def test_a_reader_whose_segment_is_removed_before_it_asks_what_was_aborted_is_sent_away() -> None:
    world = TransactionWorld.new(config=dataclasses.replace(KEPT, retention_bytes=1))
    world.write(ADA, "a")
    world.end(ADA, is_commit=False)
    world.roll()
    world.write(-1, "b")
    world.sync()
    # In another thread: it has the records, and then the owner is faster.
    records = world.log.read(ReadSpec(Offset(0), max_offset=Offset(2), bytes_max=1_000))
    assert aborted_among(world.log, Offset(0), records, cached_only=False) == [(ADA, 0)]
    world.apply_retention()
    assert world.log.log_start == 2
    with pytest.raises(OffsetOutOfRange, match="offset 0, the log starts at 2 by now"):
        aborted_among(world.log, Offset(0), records, cached_only=False)
    with pytest.raises(OffsetOutOfRange):
        world.log.aborted_in(Offset(0), Offset(2))
    assert world.log.aborted_in(Offset(2), Offset(3)) == []


def test_no_power_cut_while_segments_are_removed_shows_what_was_aborted() -> None:
    def make(seed: int) -> TransactionWorld:
        world = TransactionWorld.new(seed, dataclasses.replace(KEPT, retention_bytes=0))
        for _ in range(3):
            world.write(ADA, "a")
            world.end(ADA, is_commit=False)
            world.roll()
        world.write(-1, "b")
        world.sync()
        return world

    def story(world: TransactionWorld) -> None:
        world.apply_retention()
        world.delete_removed()

    assert every_power_cut(make, story, seeds=20) > 60


def test_no_power_cut_after_a_roll_loses_the_old_segments_index() -> None:
    def story(world: TransactionWorld) -> None:
        world.write(ADA, "a")
        world.end(ADA, is_commit=False)
        world.roll()
        world.write(BOB, "b")
        world.sync()
        world.write(BOB, "c")
        world.sync()

    for seed in range(20):
        world = TransactionWorld.new(seed)
        story(world)
        world.crash_and_start()
    assert every_power_cut(TransactionWorld.new, story, seeds=5) > 20


# -- compaction --------------------------------------------------------------------------------------------------------


def partly_compacted(seed: int) -> TransactionWorld:
    """A round with little memory ends within the second segment: some aborts lie before its end, some behind it."""
    world = TransactionWorld.new(seed, dataclasses.replace(COMPACTED, segment_bytes=4096))
    for keys in ("a", "abcdef", "a"):
        for key in keys:
            world.write(ADA, key, size=30)
            world.end(ADA, is_commit=False)
            world.write(BOB, key)
            world.end(BOB, is_commit=True)
        world.roll()
    world.sync()
    return world


def test_aborts_behind_the_end_of_a_round_are_still_known() -> None:
    world = partly_compacted(0)
    assert world.compact(keys_max=3)
    assert 4 < world.log.cleaned_end < 28
    assert world.log.has_aborted_from(world.log.cleaned_end)
    world.check()
    world.delete_removed()
    world.check()
    world.stop_and_start()
    world.crash_and_start()
    assert world.compact()
    world.delete_removed()
    world.check()


def test_no_power_cut_during_a_compaction_shows_what_was_aborted() -> None:
    def story(world: TransactionWorld) -> None:
        world.compact(keys_max=3)
        world.delete_removed()
        world.write_checkpoint()
        world.now_ms += 5000
        world.compact()
        world.delete_removed()

    assert every_power_cut(partly_compacted, story, seeds=10) > 100


def test_who_has_the_old_segments_reads_their_index_on() -> None:
    world = partly_compacted(0)
    old = world.log._parts.segments.first
    expected = old.aborted.all()
    old.release()
    assert world.compact()
    world.delete_removed()
    assert old.aborted.find(Offset(0), Offset(4))[0] == expected != []


def test_what_was_aborted_long_ago_leaves_the_index_before_its_marker_leaves_the_log() -> None:
    """Else a reader would be told of it, and take all that the producer wrote since for aborted."""
    world = TransactionWorld.new(0, COMPACTED)
    world.write(ADA, "a")
    world.end(ADA, is_commit=False)
    for key in "bcdefgh":
        world.write(ADA, key)
        world.end(ADA, is_commit=True)
        world.roll()
        world.sync()
        world.now_ms += 5000
        world.compact()
        world.delete_removed()
        world.check()
    assert not world.log.has_aborted_from(Offset(0))
    assert not any(
        header.is_control and header.base_offset == 1
        for segment in world.log._parts.segments.all
        for _, header in segment.walk_from(segment.base_offset)
    )
    world.stop_and_start()
    assert not world.log.has_aborted_from(Offset(0))


def test_nothing_is_compacted_that_no_snapshot_below_the_bound_covers() -> None:
    """Else a truncation to just above the bound would leave a snapshot that knows of a transaction, and no marker."""
    world = TransactionWorld.new(0, COMPACTED)
    world.write(-1, "a")
    world.roll()
    world.sync()
    snapshots = world.log._parts.snapshots
    world.write(-1, "a")
    world.roll()
    world.write(-1, "a")
    world.roll()
    world.sync()
    assert snapshots.offsets == [1, 2, 3]
    snapshots.forget(Offset(2))
    span = world.log.compaction_span(now_ms=world.now_ms, bound=Offset(2))
    assert span is not None
    assert span.end == 1
    span = world.log.compaction_span(now_ms=world.now_ms, bound=Offset(3))
    assert span is not None
    assert span.end == 3


def test_compaction_keeps_away_from_an_open_transaction() -> None:
    world = TransactionWorld.new(0, COMPACTED)
    world.write(-1, "a")
    world.write(ADA, "a")
    world.roll()
    world.write(-1, "a")
    world.roll()
    world.sync()
    assert not world.compact()
    world.end(ADA, is_commit=True)
    world.sync()
    assert world.compact()
    world.check()
