"""Opening a log: a new one, one that was stopped cleanly, and one that only looks like it."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.log_world import EXPIRATION_MS, SMALL, LogWorld, batch_of
from log.transaction_world import FOLDER, FUZZ, TransactionWorld, transactions_of
from respool.log.file_names import EPOCHS_NAME
from respool.log.partition_log import PartitionLog
from respool.model.errors import SegmentCorrupt
from respool.model.ids import Offset


def stopped(count: int = 30) -> LogWorld:
    """A log that was closed, and its disk opened again."""
    world = LogWorld.new()
    for number in range(5):
        world.append(batch_of(1, producer=(7, 0, number)))
    world.fill(count)
    world.log.close()
    world.write_checkpoint()
    world.disk = world.disk.reopen()
    return world


def check_loaded(world: LogWorld) -> None:
    assert world.log.synced_end == world.log_end
    world.check()
    world.append(batch_of(2, producer=(7, 0, 5)))
    assert world.append(batch_of(1, producer=(7, 0, 3))).is_duplicate
    world.fill(10)
    world.check()
    world.check_indexes()


def test_a_new_log_begins_where_it_is_told_to_and_survives_a_power_cut() -> None:
    for start in (0, 500):
        world = LogWorld.new()
        folder = f"other-{start}"
        for _ in range(2):
            log = PartitionLog.open(
                disk=world.disk,
                folder=folder,
                config=SMALL,
                now_ms=1,
                log_start=Offset(start),
                recovery_point=Offset(start),
                clean=False,
                producer_expiration_ms=EXPIRATION_MS,
            )
            assert (log.log_start, log.log_end, log.synced_end) == (start, start, start)
            world.disk.crash()
            world.disk = world.disk.reopen()
            assert world.disk.list_folder(folder)[0] == f"{start:020d}.log" or log.recovery


def test_after_a_clean_stop_no_log_file_is_read() -> None:
    world = stopped()
    world.open(clean=True)
    assert world.disk.counters.reads == 0
    assert world.disk.counters.syncs == world.disk.counters.folder_syncs == 0
    assert world.log.recovery is None
    check_loaded(world)


def test_a_clean_start_costs_the_same_whatever_lies_there() -> None:
    """Two small files are read: the snapshot and the epochs."""
    counters = []
    for count in (5, 300):
        world = stopped(count)
        world.open(clean=True)
        counters.append(world.disk.counters)
    assert counters[0].small_files_read == counters[1].small_files_read == 2
    assert counters[1].reads == 0


def test_a_log_that_was_only_opened_and_closed_writes_nothing() -> None:
    world = stopped()
    world.open(clean=True)
    world.log.close()
    counters = world.disk.counters
    assert (counters.syncs, counters.replaced_files, counters.reads) == (0, 0, 0)
    world.disk = world.disk.reopen()
    world.open(clean=True)
    check_loaded(world)


def test_without_the_snapshot_at_its_end_headers_are_replayed() -> None:
    world = stopped()
    world.disk.delete(world.log._parts.snapshots.path(world.log_end))
    world.open(clean=True)
    assert world.disk.counters.reads > 0
    check_loaded(world)


def test_without_any_snapshot_all_headers_are_replayed() -> None:
    world = stopped()
    for name in world.disk.list_folder(FOLDER):
        if name.endswith(".snapshot"):
            world.disk.delete(f"{FOLDER}/{name}")
    world.open(clean=True)
    check_loaded(world)


@pytest.mark.parametrize("content", [None, b"", b"garbage"])
def test_without_its_epochs_they_are_found_in_the_headers(content: bytes | None) -> None:
    world = LogWorld.new()
    for _ in range(3):
        world.fill(10)
        world.lead()
    world.fill(3)
    world.log.close()
    world.write_checkpoint()
    world.disk = world.disk.reopen()
    path = f"{FOLDER}/{EPOCHS_NAME}"
    if content is None:
        world.disk.delete(path)
    else:
        world.disk.replace_file(path, content)
    world.open(clean=True)
    world.check()


def test_an_epoch_without_data_survives_every_restart() -> None:
    world = LogWorld.new()
    world.fill(5)
    world.sync()
    world.lead()
    for restart in (world.stop_and_start, world.kill_and_start, world.crash_and_start):
        restart()
        assert world.log._parts.epochs.entries[-1] == (world.epoch, world.log_end)


def test_a_recovery_point_that_is_too_low_is_not_believed_to_be_the_end() -> None:
    """A checkpoint older than the stop, with the marker that says the stop was clean."""
    world = stopped()
    world.recovery_point = Offset(20)
    world.open(clean=True)
    check_loaded(world)


def test_a_stop_that_had_no_room_for_its_snapshot_costs_a_look_at_the_tail() -> None:
    """The newest snapshot is then of an earlier stop, within the segment being written."""
    world = LogWorld.new()
    world.fill(3)
    world.stop_and_start()
    world.fill(2)
    world.sync()
    world.disk.faults.capacity_bytes = 1
    world.log.close()
    world.write_checkpoint()
    world.disk.faults.heal()
    assert world.log.synced_end == world.log_end
    world.disk = world.disk.reopen()
    world.open(clean=True)
    assert world.disk.counters.reads > 0
    world.check()
    world.fill(3)
    world.check()


def test_an_epoch_beyond_the_end_is_not_believed() -> None:
    world = stopped()
    world.disk.replace_file(
        f"{FOLDER}/{EPOCHS_NAME}", f"0\n2\n0 0\n9 {world.log_end + 1}\n".encode()
    )
    world.open(clean=True)
    assert world.log._parts.epochs.entries == [(0, 0)]


def test_a_log_that_ends_before_its_recovery_point_is_refused() -> None:
    for clean in (True, False):
        world = stopped()
        world.recovery_point = Offset(world.log_end + 1)
        with pytest.raises(SegmentCorrupt, match=f"ends at offset {world.log_end}, but"):
            world.open(clean=clean)


def test_a_log_whose_segments_are_gone_is_refused() -> None:
    for clean in (True, False):
        world = stopped()
        for name in world.disk.list_folder(FOLDER):
            world.disk.delete(f"{FOLDER}/{name}")
        with pytest.raises(SegmentCorrupt, match="has no segment, but it was synced"):
            world.open(clean=clean)


def test_a_tail_that_was_cut_in_spite_of_a_clean_stop_is_noticed() -> None:
    world = stopped()
    path = world.log._parts.segments.active.path
    world.disk.open_log(path).truncate(world.disk.size(path) - 1)
    # Nothing was read, so it is noticed by the first who writes or reads there, and nothing is written.
    world.open(clean=True)
    with pytest.raises(SegmentCorrupt):
        world.log.append(batch_of(1), leader_epoch=world.epoch, now_ms=1)
    assert world.log.log_end == world.log_end


def test_the_log_start_is_the_later_of_what_was_written_down_and_what_is_there() -> None:
    world = stopped()
    world.log_start_written = Offset(7)
    world.open(clean=True)
    assert world.log.log_start == 7
    world.log_start = Offset(7)
    world.raise_log_start(Offset(world.log._parts.segments.all[2].base_offset + 1))
    for one in world.apply_retention(world.log_end):
        one.delete()
    world.log.close()
    world.recovery_point = world.log.synced_end
    world.disk = world.disk.reopen()
    world.open(clean=True)
    assert world.log.log_start == world.first_base() > 7


def test_records_deleted_and_then_lost_leave_a_log_that_starts_where_it_should() -> None:
    """Deleted beyond what was synced, under respool.flush=os; then the power goes."""
    world = LogWorld.new(3)
    world.fill(3)
    world.sync()
    world.fill(30)
    world.raise_log_start(world.log_end)
    world.log_start_written = world.log_end
    start = world.log_end
    world.crash_and_start()
    assert (world.log.log_start, world.log.log_end) == (start, start)
    world.fill(3)
    world.check()
    world.crash_and_start()
    world.stop_and_start()


def test_a_missing_index_of_an_old_segment_does_not_hinder_a_clean_start() -> None:
    world = stopped()
    for name in world.disk.list_folder(FOLDER):
        if name.endswith("index"):
            world.disk.delete(f"{FOLDER}/{name}")
    world.open(clean=True)
    assert world.disk.counters.reads == 0
    check_loaded(world)


WAYS = ("clean", "kill", "crash")


def stable_offset(world: TransactionWorld, high_watermark: int) -> int:
    """By looking at everything: where the first transaction began that is not decided below the high watermark."""
    undecided = [
        one.first_offset
        for one in transactions_of(world.history)
        if one.end is None or one.end.base_offset >= high_watermark
    ]
    return min([high_watermark, *undecided])


def reopen(world: TransactionWorld, high_watermark: int, way: str) -> PartitionLog:
    if way == "clean":
        world.log.close()
    elif (pending := world.log.begin_sync()) is not None:
        pending.run()
        world.log.finish_sync(pending)
    world.write_checkpoint()
    if way == "crash":
        world.disk.crash()
    elif way == "kill":
        world.disk.kill()
    world.disk = world.disk.reopen()
    world.log = PartitionLog.open(
        disk=world.disk,
        folder=FOLDER,
        config=world.config,
        now_ms=world.now_ms,
        log_start=world.log_start_written,
        recovery_point=world.recovery_point,
        clean=way == "clean",
        producer_expiration_ms=10**12,
        high_watermark=Offset(high_watermark),
        is_replicated=True,
    )
    assert world.log.log_end == world.log_end
    return world.log


def check_from(world: TransactionWorld, high_watermark: int) -> None:
    """Now, and whenever it is raised until all is committed."""
    log = world.log
    for offset in range(high_watermark, log.log_end + 1):
        log.on_high_watermark(Offset(offset))
        assert log.last_stable_offset(Offset(offset)) == stable_offset(world, offset), offset


def told(*story: str) -> TransactionWorld:
    """Words of a producer's number and what it does: w(rite), c(ommit), a(bort); "roll" and "-w" are by nobody."""
    world = TransactionWorld.new()
    for word in story:
        match word[-1]:
            case "l":
                world.roll()
            case "w":
                world.write(-1 if word == "-w" else int(word[:-1]), "k")
            case end:
                world.end(int(word[:-1]), is_commit=end == "c")
    return world


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_keeps_readers_back_until_its_end_is_committed(way: str) -> None:
    world = told("-w", "1w", "1c", "-w")
    log = reopen(world, 2, way)
    assert log.last_stable_offset(Offset(2)) == 1
    log.on_high_watermark(Offset(3))
    assert log.last_stable_offset(Offset(3)) == 3


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_is_known_though_it_began_in_an_earlier_segment(way: str) -> None:
    world = told("1w", "roll", "-w", "roll", "-w", "1a", "2w")
    log = reopen(world, 3, way)
    assert log.last_stable_offset(Offset(3)) == 0
    check_from(world, 3)


def test_without_a_high_watermark_all_is_committed() -> None:
    world = told("1w", "1c")
    world.stop_and_start()
    assert world.log.last_stable_offset(Offset(2)) == 2


def test_a_clean_start_reads_no_header_where_all_is_committed() -> None:
    world = told("1w", "1c", "2w")
    reopen(world, world.log_end, "clean")
    assert world.disk.counters.reads == 0


def test_a_high_watermark_beyond_the_log_is_that_of_its_end() -> None:
    world = told("1w", "1c", "2w")
    log = reopen(world, 9, "kill")
    assert log.last_stable_offset(Offset(3)) == 2


def test_a_transaction_whose_end_is_cut_off_is_open_again() -> None:
    world = told("1w", "2w", "1c", "2a")
    log = reopen(world, 2, "clean")
    log.truncate_to(Offset(3))
    assert log.has_open_transaction(2)
    assert not log.has_open_transaction(1)
    assert log.last_stable_offset(Offset(2)) == 0
    log.on_high_watermark(Offset(3))
    assert log.last_stable_offset(Offset(3)) == 1


class Ending(NamedTuple):
    way: str
    # Where the high watermark and the cut are, in hundredths of the log.
    committed: int
    cut: int


WORDS = st.sampled_from(
    ["-w", "roll", *(f"{number}{what}" for number in (1, 2, 3) for what in "wwca")]
)
ENDINGS = st.builds(
    Ending,
    way=st.sampled_from(WAYS),
    committed=st.integers(0, 100),
    cut=st.integers(0, 120),
)


@given(story=st.lists(WORDS, max_size=25), endings=st.lists(ENDINGS, min_size=1, max_size=3))
@settings(max_examples=3000 if FUZZ else 150, deadline=None)
def test_the_last_stable_offset_is_what_the_whole_log_tells(
    story: list[str], endings: list[Ending]
) -> None:
    world = told(*story)
    check_from(world, 0)
    for ending in endings:
        high_watermark = world.log_end * ending.committed // 100
        log = reopen(world, high_watermark, ending.way)
        assert log.last_stable_offset(Offset(high_watermark)) == stable_offset(
            world, high_watermark
        )
        # Below the high watermark, too: another leader may have less.
        cut = min(world.log_end * ending.cut // 100, world.log_end)
        world.recovery_point = min(world.recovery_point, Offset(cut))
        log.truncate_to(Offset(cut))
        world.history = [one for one in world.history if one.next_offset <= cut]
        assert log.log_end == world.log_end
        opened = {one.producer_id for one in log.active_producers() if one.has_open_transaction}
        assert opened == set(world.open_producers())
        check_from(world, min(high_watermark, world.log_end))
