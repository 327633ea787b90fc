"""What a compaction does to a log, told in stories; random histories are in `test_compaction_model.py`."""

import dataclasses
from collections.abc import Callable

import pytest

from log.compaction_world import (
    COMPACT,
    FOLDER,
    SCANNERS,
    CompactionWorld,
    batch_of,
    keyed,
)
from respool.log.compaction import batch_chunks
from respool.log.partition_log import ReadSpec
from respool.log.read_batches import find_batches
from respool.log.time_lookup import find_first_at_or_after
from respool.model.errors import DiskFailed, DiskFull, SegmentCorrupt
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import (
    CleanupPolicies,
    CleanupPolicy,
    CompressionType,
    TopicConfig,
)
from respool.ports.record_scan import RecordScanner
from respool.records.batch import Codec, read_header, seal
from respool.records.build import NewRecord
from respool.records.validate import walk_batches
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_files import SimLogFile

BIG = dataclasses.replace(COMPACT, segment_bytes=10_000)


def names_in(world: CompactionWorld, ending: str) -> list[str]:
    return [name for name in world.disk.list_folder(FOLDER) if name.endswith(ending)]


def filled(*rounds: str, config: TopicConfig = BIG, seed: int = 0) -> CompactionWorld:
    """A log with one segment for each word: a record for each letter, with its number for a value."""
    world = CompactionWorld.new(seed, config)
    number = 0
    for word in rounds:
        for letter in word:
            value = None if letter.isupper() else str(number)
            world.append(keyed(letter.lower(), value, at_ms=1000 + number))
            number += 1
        world.roll()
    return world


# -- what stays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scanner", SCANNERS)
def test_of_each_key_the_newest_record_stays_where_it_was(scanner: RecordScanner) -> None:
    world = filled("abac", "bda")
    world.scanner = scanner
    world.append(keyed("a", "new"), keyed("a", "newer"))
    assert world.compact()
    # The last two are in the segment that is being written.
    assert world.values() == [
        (3, "c", "3"), (4, "b", "4"), (5, "d", "5"), (6, "a", "6"),
        (7, "a", "new"), (8, "a", "newer"),
    ]  # fmt: skip
    assert world.log.cleaned_end == 7
    world.check()


def test_a_fetch_at_an_offset_that_is_gone_gives_the_next_batch() -> None:
    world = filled("abab", "ab")
    world.compact()
    for offset in range(world.log_end + 2):
        world.check_read(Offset(offset))
    assert world.values()[0][0] == 4


def test_nothing_beyond_the_bound_is_touched() -> None:
    world = filled("aa", "aa", "aa")
    # Only the first segment is committed, and a part of the second.
    span = world.log.compaction_span(now_ms=world.now_ms, bound=Offset(3))
    assert span is not None
    assert span.end == 2


def test_the_segment_that_is_written_to_is_left_alone() -> None:
    world = CompactionWorld.new(0, BIG)
    world.append(keyed("a"), keyed("a"))
    world.sync()
    assert not world.compact()
    assert len(world.records()) == 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("scanner", SCANNERS)
def test_batches_keep_codec_offsets_sequence_headers_and_times(
    codec: Codec, scanner: RecordScanner
) -> None:
    world = CompactionWorld.new(0, BIG)
    world.scanner = scanner
    records = [
        NewRecord(
            key=b"%d" % (number % 4),
            value=b"v" * 100,
            timestamp_ms=1000 + number,
            headers=(("who", b"me"), ("none", None)),
        )
        for number in range(10)
    ]
    world.append(*records, codec=codec, producer=(7, 1, 40))
    world.append(keyed("0", "later"), codec=codec)
    world.roll()
    before = world.batches()[0].header
    world.compact()
    header, kept = world.batches()[0]
    assert [one.offset for one in kept] == [6, 7, 9]
    assert kept == [one for one in world.history if one.offset in (6, 7, 9)]
    assert header == before._replace(
        length=header.length, crc=header.crc, record_count=3, max_timestamp=1009
    )
    assert header.length < before.length


@pytest.mark.parametrize("ours", [False, True])
def test_the_largest_time_of_a_batch_follows_its_records(ours: bool) -> None:
    world = CompactionWorld.new(0, BIG)
    records = [keyed("a", "1", 3000), keyed("b", "2", 5000), keyed("c", "3", 4000)]
    world.append(*records, log_append_time=ours)
    world.append(keyed("b", "4", 1000))
    world.roll()
    world.compact()
    # In the broker's time all records have the same.
    assert world.batches()[0].header.max_timestamp == (5000 if ours else 4000)
    for timestamp in (999, 1000, 3000, 4000, 4001, 5001):
        world.check_times(timestamp, world.log_end)


def test_batches_that_lose_nothing_are_copied_byte_for_byte() -> None:
    world = CompactionWorld.new(0, BIG)
    whole = batch_of(keyed("a", "1"), keyed("b", "2"), codec=Codec.GZIP)
    world.append_batch(whole)
    world.append(keyed("c"), keyed("c"))
    world.roll()
    world.compact()
    data = world.log.read(ReadSpec(Offset(0), max_offset=Offset(2), bytes_max=10**6))
    assert data[16:] == bytes(whole.data)[16:]


def test_what_cannot_be_opened_stays_as_it_is() -> None:
    world = CompactionWorld.new(0, BIG)
    good = batch_of(keyed("a", "1"), keyed("a", "2"))
    nonsense = [
        seal(good.header._replace(attributes=int(codec)), b"\x01\x02nonsense") for codec in Codec
    ]
    for batch in nonsense:
        world.log.append(batch, leader_epoch=LeaderEpoch(0), now_ms=0)
    world.log.append(good, leader_epoch=LeaderEpoch(0), now_ms=0)
    world.roll()
    before = world.log.read(ReadSpec(Offset(0), max_offset=Offset(10), bytes_max=10**6))
    assert world.begin()
    assert world.compaction is not None
    while not world.compaction.is_complete:
        world.compaction.run()
        world.log.finish_compaction(world.compaction)
    after = world.log.read(ReadSpec(Offset(0), max_offset=Offset(10), bytes_max=10**6))
    assert after == before
    last = world.log.read(ReadSpec(Offset(10), max_offset=Offset(12), bytes_max=10**6))
    assert len(last) < len(good.data)


def test_records_without_a_key_go() -> None:
    """They were there before the topic was compacted, and nothing would ever take their place."""
    world = CompactionWorld.new(0, BIG)
    world.append(keyed(None, "1"), keyed("a", "2"), keyed(None, None))
    world.append(keyed(None, "3"))
    world.roll()
    world.compact()
    assert world.values() == [(1, "a", "2")]


# -- deletions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scanner", SCANNERS)
def test_a_deletion_stays_its_time_once_it_is_all_that_is_left(scanner: RecordScanner) -> None:
    config = dataclasses.replace(BIG, delete_retention_ms=1000)
    world = filled("abA", "c", config=config)
    world.scanner = scanner
    world.compact()
    assert world.values() == [(1, "b", "1"), (2, "a", None), (3, "c", "3")]
    (header, (record,)) = next(one for one in world.batches() if one.header.base_offset == 2)
    assert header.has_delete_horizon
    assert header.base_timestamp == world.now_ms + 1000
    assert record.timestamp == 1002

    world.now_ms += 999
    world.append(keyed("d"))
    world.roll()
    assert world.compact()
    assert (2, "a", None) in world.values()

    world.now_ms += 1
    world.append(keyed("e"))
    world.roll()
    assert world.compact()
    assert [key for _, key, _ in world.values()] == ["b", "c", "d", "e"]
    world.check()


def test_the_first_compaction_of_a_deletion_sets_its_time_and_later_ones_do_not_move_it() -> None:
    world = filled("A", "b")
    world.compact()
    horizon = world.batches()[0].header.base_timestamp
    world.now_ms += 500
    world.append(keyed("c"))
    world.roll()
    world.compact()
    assert world.batches()[0].header.base_timestamp == horizon


def test_a_deletion_beyond_the_end_of_a_round_gets_no_time_yet() -> None:
    world = CompactionWorld.new(0, BIG)
    letters = "abcdefghijklmnopqrstuvw"
    world.append(*(keyed(letter, "1") for letter in letters), keyed("a", None))
    world.roll()
    # There is room for so few keys that the round ends within the batch.
    world.compact(keys_max=5)
    assert world.log.cleaned_end == 5
    assert not world.batches()[0].header.has_delete_horizon
    for _ in range(10):
        world.compact(keys_max=5)
    assert world.log.cleaned_end == 24
    assert world.batches()[0].header.has_delete_horizon
    world.check_compacted(Offset(24))


def test_a_deleted_key_that_is_written_again_is_there() -> None:
    world = filled("aA", "a")
    world.compact()
    assert world.values() == [(2, "a", "2")]


# -- headers without records -------------------------------------------------------------------------------------------


def test_a_log_of_which_nothing_is_left_still_ends_where_it_did() -> None:
    # So small that no two segments become one.
    config = dataclasses.replace(BIG, delete_retention_ms=0, segment_bytes=10)
    world = filled("ab", "AB", config=config)
    world.compact()
    world.now_ms += 1
    world.append(keyed("c"))
    world.roll()
    world.compact()
    assert world.values() == [(4, "c", "v")]
    empty = world.headers_on_disk()[:-1]
    assert [(one.header.last_offset, one.header.size) for one in empty] == [
        (offset, 61) for offset in range(4)
    ]
    world.crash_and_start()
    assert world.log.log_end == 5
    assert world.log.log_start == 0


def test_producers_are_known_by_what_is_left_of_their_batches() -> None:
    """Also when no snapshot is left: their last batches stay in the log, if only as headers."""
    world = CompactionWorld.new(0, BIG)
    for sequence in range(8):
        world.append(keyed("a", str(sequence)), producer=(5, 2, sequence))
    world.append(keyed("a", "newest"))
    world.roll()
    world.compact()
    assert [one.header.last_offset for one in world.headers_on_disk()] == [3, 4, 5, 6, 7, 8]
    assert len(world.records()) == 1
    for name in names_in(world, ".snapshot"):
        world.disk.delete(f"{FOLDER}/{name}")
    world.kill_and_start()
    world.check_producers()
    (state,) = world.log.active_producers()
    assert len(state.batches) == 5


def test_a_forgotten_producer_needs_no_headers() -> None:
    world = CompactionWorld.new(0, BIG)
    world.append(keyed("a", "1"), producer=(5, 2, 0))
    world.append(keyed("a", "2"))
    world.roll()
    world.log._parts.producers.expire(10**15)
    world.log._parts.producers.expire(2 * 10**15)
    world.compact()
    assert len(world.headers_on_disk()) == 1


def test_times_are_looked_up_among_records_and_not_among_empty_headers() -> None:
    world = CompactionWorld.new(0, BIG)
    world.append(keyed("a", "1", at_ms=9000), producer=(5, 2, 0))
    world.append(keyed("b", "1", at_ms=3000))
    world.append(keyed("a", "2", at_ms=2000))
    world.roll()
    world.compact()
    assert world.headers_on_disk()[0].header.record_count == 0
    for timestamp in (0, 2000, 2001, 3000, 3001, 9000, 9001):
        for end in range(4):
            world.check_times(timestamp, Offset(end))
    # Also when the indexes are made anew.
    for ending in (".index", ".timeindex"):
        for name in names_in(world, ending):
            world.disk.delete(f"{FOLDER}/{name}")
    world.kill_and_start()
    world.check_times(3001, Offset(3))
    world.check_segments()


def test_readers_get_headers_without_records_only_where_nothing_else_comes() -> None:
    """librdkafka takes an answer without records for one that was cut too short."""
    world = CompactionWorld.new(0, BIG)
    for sequence in range(4):
        world.append(keyed("a", str(sequence)), producer=(5, 2, sequence))
        world.roll()
    world.append(keyed("a", "newest"))
    world.roll()
    world.compact()
    assert [one.header.record_count for one in world.headers_on_disk()] == [0, 0, 0, 0, 1]
    for offset in range(5):
        world.check_read(Offset(offset))
        data = world.log.read(ReadSpec(Offset(offset), max_offset=Offset(5), bytes_max=1))
        assert read_header(data).base_offset == 4
        # Before the newest is committed there is nothing else.
        data = world.log.read(ReadSpec(Offset(offset), max_offset=Offset(4), bytes_max=1))
        assert [header.base_offset for _, header in walk_batches(data)] == [offset][: 4 - offset]
        # A follower gets them all, for what they tell of their producers.
        data = world.log.read(
            ReadSpec(Offset(offset), max_offset=Offset(5), bytes_max=1, with_empty=True)
        )
        assert read_header(data).base_offset == offset


def test_times_are_looked_up_where_the_log_starts_within_what_is_left_of_a_batch() -> None:
    world = CompactionWorld.new(0, BIG)
    world.append(keyed("a", "1", 5000), keyed("b", "2", 3000), keyed("b", "3", 9000))
    world.append(keyed("b", "4", 1000))
    world.roll()
    world.compact()
    world.log.raise_log_start(Offset(1))
    world.forgotten_below = Offset(1)
    assert world.values() == [(3, "b", "4")]
    for timestamp in (0, 1000, 1001, 5000, 9001):
        world.check_times(timestamp, world.log_end)


# -- which and when ----------------------------------------------------------------------------------------------------


def test_small_neighbours_become_one_segment() -> None:
    world = filled("abc", "abd", "abe", "xyz", config=dataclasses.replace(BIG, segment_bytes=1024))
    assert len(names_in(world, ".log")) == 5
    world.compact()
    world.delete_removed()
    # Three times 246 bytes fit; what is left of the fourth is joined the next time.
    assert names_in(world, ".log") == [f"{base:020d}.log" for base in (0, 12)]
    assert [name[:20] for name in names_in(world, ".snapshot")] == ["00000000000000000012"]
    world.check()
    world.kill_and_start()


def test_a_log_of_which_little_is_left_becomes_one_segment_at_once() -> None:
    """Also when they all were full."""
    config = dataclasses.replace(BIG, segment_bytes=1024)
    world = filled("ab" * 100, config=config)
    sizes = [segment.size for segment in world.log._parts.segments.all[:-1]]
    assert len(sizes) > 10
    assert min(sizes[:-1]) > 900
    batch_chunks.READ_BYTES = 70
    world.compact()
    world.delete_removed()
    # What is left, and the one that is being written.
    assert len(names_in(world, ".log")) == 2
    world.check()


def test_the_snapshot_at_a_segments_base_stays_when_it_is_replaced() -> None:
    world = filled("ab", "ab", config=dataclasses.replace(BIG, segment_bytes=10))
    world.compact()
    assert [name[19] for name in names_in(world, ".snapshot")] == ["1", "2", "3", "4"]


def test_what_an_earlier_attempt_left_is_not_taken_for_the_new_segment() -> None:
    world = filled("abab")
    for name in ("0" * 20 + ".log.cleaned", "0" * 20 + ".index.cleaned"):
        world.disk.replace_file(f"{FOLDER}/{name}", b"nonsense")
    assert world.compact()
    world.check()


def test_a_segment_that_would_be_the_same_is_not_replaced() -> None:
    world = filled("abc", "d", config=dataclasses.replace(COMPACT, segment_bytes=1024))
    world.config = dataclasses.replace(world.config, segment_bytes=10)
    world.log.update_config(world.config)
    world.compact()
    assert world.removed == []
    assert names_in(world, ".deleted") == []
    assert names_in(world, ".cleaned") == []
    assert world.log.cleaned_end == 4


def test_only_a_log_that_is_dirty_enough_is_compacted() -> None:
    config = dataclasses.replace(BIG, min_cleanable_dirty_ratio=0.5)
    world = filled("abc", config=config)
    assert world.compact()
    # As much again: half of it is new, and that is not more than half.
    for letter in "abc":
        world.append(keyed(letter, "2"))
    world.roll()
    assert not world.compact()
    world.append(keyed("d"))
    world.roll()
    assert world.compact()


def test_a_log_with_nothing_new_is_not_compacted_again() -> None:
    world = filled("abab")
    assert world.compact()
    assert not world.compact()
    assert world.log.compaction_span(now_ms=world.now_ms, bound=world.log_end) is None


def test_young_records_are_left_alone() -> None:
    config = dataclasses.replace(BIG, min_compaction_lag_ms=1000)
    world = filled("aa", "aa", config=config)
    # The last of the first segment is from 1001, of the second from 1003.
    world.now_ms = 2000
    assert not world.compact()
    world.now_ms = 2001
    assert world.compact()
    assert [offset for offset, _, _ in world.values()] == [1, 2, 3]
    world.now_ms = 3000
    assert world.compact()
    assert [offset for offset, _, _ in world.values()] == [3]


@pytest.mark.parametrize("restart", [False, True])
def test_a_record_that_waits_too_long_is_compacted_however_few_there_are(restart: bool) -> None:
    config = dataclasses.replace(
        BIG, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1000, min_compaction_lag_ms=0
    )
    world = filled("abc" * 3, config=config)
    world.now_ms = 1500
    assert world.compact()
    world.append(keyed("a", at_ms=2000))
    world.roll()
    world.now_ms = 3000
    assert not world.compact()
    if restart:
        world.stop_and_start()
    world.now_ms = 3001
    assert world.compact()


def test_only_what_a_snapshot_vouches_for_is_compacted() -> None:
    """A recovery takes gaps for damage where it does not know that all was on the disk."""
    world = filled("aa", "aa")
    for _ in range(3):
        world.append(keyed("b", "1"))
    world.log._parts.roll(world.now_ms)
    world.disk.faults.capacity_bytes = 0
    world.sync()
    world.disk.faults.heal()
    assert not names_in(world, "7.snapshot")
    world.compact()
    assert world.log.cleaned_end == 4
    world.crash_and_start()
    assert world.log.log_end == 7


@pytest.mark.parametrize("policy", [CleanupPolicy.COMPACT, CleanupPolicy.DELETE])
def test_retention_removes_old_segments_only_where_the_policy_says_so(
    policy: CleanupPolicy,
) -> None:
    policies = CleanupPolicies((CleanupPolicy.COMPACT, policy))
    config = dataclasses.replace(BIG, cleanup_policy=policies, retention_ms=0, retention_bytes=0)
    world = filled("ab", "cd", config=config)
    world.now_ms = 10**9
    removed = world.log.apply_retention(now_ms=world.now_ms, high_watermark=world.log_end)
    assert len(removed) == (2 if policy is CleanupPolicy.DELETE else 0)


def test_without_a_policy_a_log_is_neither_compacted_nor_deleted() -> None:
    config = dataclasses.replace(
        BIG, cleanup_policy=CleanupPolicies(), retention_ms=0, retention_bytes=0
    )
    world = filled("aaa", "aaa", config=config)
    assert not world.compact()
    world.now_ms = 10**9
    assert not world.log.apply_retention(now_ms=world.now_ms, high_watermark=world.log_end)
    assert len(world.records()) == 6


def test_what_is_compacted_in_the_topics_codec_has_the_topics_level() -> None:
    sizes = {}
    for level in (1, 9):
        config = dataclasses.replace(
            BIG, compression_type=CompressionType.GZIP, compression_gzip_level=level
        )
        world = CompactionWorld.new(0, config)
        records = [keyed(str(n), f"the fare of ride {n} is {n * n % 97}") for n in range(300)]
        world.append(*records, codec=Codec.GZIP)
        world.append(keyed("0", "later"))
        world.roll()
        assert world.compact()
        sizes[level] = world.batches()[0].header.size
        assert len(world.records()) == 300
    assert sizes[9] < sizes[1]


def test_a_log_that_is_not_compacted_says_so() -> None:
    config = dataclasses.replace(BIG, cleanup_policy=CleanupPolicies((CleanupPolicy.DELETE,)))
    world = filled("aaa", "aaa", config=config)
    assert not world.compact()


# -- bounded memory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scanner", SCANNERS)
def test_with_little_memory_the_rounds_are_short_and_come_to_the_same(
    scanner: RecordScanner,
) -> None:
    words = ["abcdefghij" * 3, "klmnopqrstuvwxyz" * 2, "aeiou" * 5]
    world = filled(*words)
    world.scanner = scanner
    rounds = 0
    while world.compact(keys_max=3):
        rounds += 1
    assert rounds > 1
    reference = filled(*words)
    reference.compact()
    assert world.records() == reference.records()
    assert world.log.cleaned_end == reference.log.cleaned_end


# -- meanwhile ---------------------------------------------------------------------------------------------------------


def compacting(world: CompactionWorld) -> CompactionWorld:
    """As far as to the moment before the first new segment takes its place."""
    assert world.begin(slice_bytes=100)
    while world.compaction is not None and world.compaction.cleaned is None:
        world.run()
    return world


def test_appends_and_rolls_go_on_meanwhile() -> None:
    world = compacting(filled("aaa", "aaa"))
    world.append(keyed("a", "meanwhile"))
    world.roll()
    world.append(keyed("a", "last"))
    world.go_on_to_the_end()
    assert [value for _, _, value in world.values()] == ["5", "meanwhile", "last"]
    world.check()


def test_segments_that_retention_removes_meanwhile_do_not_come_back() -> None:
    world = compacting(filled("abc", "abd", "e"))
    world.log.raise_log_start(Offset(3))
    world.removed += world.log.apply_retention(now_ms=0, high_watermark=world.log_end)
    assert world.log.log_start == 3
    world.finish()
    assert names_in(world, ".cleaned") == []
    world.go_on_to_the_end()
    # The round was not whole, so it is done again.
    assert world.log.cleaned_end == 0
    world.forgotten_below = Offset(3)
    world.check()
    assert world.compact()
    assert world.log.cleaned_end == 7


def test_a_truncation_meanwhile_makes_the_work_useless() -> None:
    world = compacting(filled("abc", "abd"))
    compaction = world.compaction
    assert compaction is not None
    world.append(keyed("x"))
    world.log.truncate_to(Offset(6))
    world.headers.pop()
    world.history.pop()
    assert compaction.is_abandoned
    assert world.log.finish_compaction(compaction) == []
    assert names_in(world, ".cleaned") == []
    assert len(world.records()) == 6
    world.compaction = None
    assert world.compact()


def test_a_deleted_log_is_compacted_no_further() -> None:
    world = filled("abc" * 5, "abd" * 5)
    assert world.begin(slice_bytes=1)
    assert world.compaction is not None
    world.run()
    world.log.delete()
    assert world.compaction.is_abandoned
    world.run()
    assert world.compaction.is_complete


def test_a_stop_leaves_half_done_work_behind_and_the_next_start_removes_it() -> None:
    world = compacting(filled("abc", "abd"))
    assert names_in(world, ".cleaned")
    world.stop_and_start()
    assert len(world.records()) == 6


def test_readers_go_on_with_the_segments_they_have() -> None:
    world = compacting(filled("abc", "abd"))
    log = world.log
    old, end = log._parts.segments, log._parts.end
    before = world.values()
    for segment in old.all:
        segment.release()
    world.go_on_to_the_end()
    world.delete_removed()
    assert len(world.values()) < len(before)
    found = find_batches(
        old, ReadSpec(Offset(0), max_offset=Offset(3), bytes_max=10**6), end=end, synced=end
    )
    assert found is not None
    data = found.segment.read(found.position, found.size)
    assert [header.base_offset for _, header in walk_batches(data)] == [0, 1, 2]
    assert find_first_at_or_after(old, 1004, log_start=Offset(0), max_offset=Offset(6)) == (
        4,
        1004,
        0,
    )


def test_a_reader_that_opens_a_segment_while_it_is_replaced_gets_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. It finds no file open.   2. The segment is replaced.   3. It opens the name, which is another's now."""
    world = compacting(filled("abc", "abd"))
    old = world.log._parts.segments.all[0]
    old.release()
    content = world.disk.read_file(old.path)
    open_log = world.disk.open_log

    def replaced_just_before(path: str, *, create: bool) -> SimLogFile:
        monkeypatch.setattr(world.disk, "open_log", open_log)
        world.go_on_to_the_end()
        return open_log(path, create=create)

    monkeypatch.setattr(world.disk, "open_log", replaced_just_before)
    assert old.read(0, old.size) == content
    assert world.disk.read_file(old.path) != content
    assert old.read(0, old.size) == content


def test_two_compactions_at_once_are_not_begun() -> None:
    world = compacting(filled("abc", "abd"))
    first = world.compaction
    assert not world.begin()
    assert world.compaction is first


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "path"), [("append", "*.log.cleaned"), ("sync", "*.cleaned")])
def test_a_disk_that_fails_while_the_new_segment_is_written_changes_nothing(
    call: str, path: str
) -> None:
    world = filled("abc", "abd")
    before = world.values()
    assert world.begin()
    world.disk.faults.fail(call, path=path)  # type: ignore[arg-type]
    with pytest.raises(DiskFailed):
        world.run()
    world.fail_compaction()
    assert world.values() == before
    assert names_in(world, ".cleaned") == []
    assert world.compact()


def test_on_a_full_disk_the_log_stays_as_it_is() -> None:
    world = filled("abc", "abd")
    before = world.values()
    assert world.begin()
    world.disk.faults.capacity_bytes = 0
    with pytest.raises(DiskFull):
        world.run()
    world.disk.faults.heal()
    world.fail_compaction()
    assert world.values() == before


@pytest.mark.parametrize("segment", [0, 1])
def test_a_damaged_batch_ends_the_round_before_its_segment_is_replaced(segment: int) -> None:
    world = filled("abc" * 10, "abd" * 10, config=dataclasses.replace(BIG, segment_bytes=1100))
    # In the values, so that only the checksum can tell.
    bases = sorted(name for name in names_in(world, ".log"))
    path = f"{FOLDER}/{bases[segment]}"
    world.disk.corrupt(path, world.disk.size(path) - 3)
    before = {name: world.disk.read_file(f"{FOLDER}/{name}") for name in bases}
    assert world.begin()
    with pytest.raises(SegmentCorrupt, match=bases[segment]):
        world.go_on_to_the_end()
    assert world.disk.read_file(path) == before[bases[segment]]


# -- power cuts --------------------------------------------------------------------------------------------------------


def power_cuts(
    prepare: Callable[[int], CompactionWorld], story: Callable[[CompactionWorld], None], seeds: int
) -> int:
    """Tell a story again and again, with the power going at each of its changes to the disk; count the cuts."""
    cuts = 0
    for seed in range(seeds):
        for changes in range(10_000):
            world = prepare(seed)
            world.disk.faults.cut_power_after(changes)
            try:
                story(world)
            except ProcessGone:
                # A second cut, while the first one is being repaired.
                world.disk.crash()
                world.disk = world.disk.reopen()
                world.disk.faults.cut_power_after(seed)
                try:
                    world.open(clean=False)
                except ProcessGone:
                    world.disk.crash()
                    world.disk = world.disk.reopen()
                world.disk.faults.heal()
                world.come_back()
                cuts += 1
            else:
                break
    return cuts


def whole_story(world: CompactionWorld) -> None:
    world.compact()
    world.delete_removed()
    world.append(keyed("a", "more"))
    world.sync()


def test_a_power_cut_at_any_moment_leaves_the_old_segment_or_the_new() -> None:
    cuts = power_cuts(lambda seed: filled("abcabc", "abA", "ccd", seed=seed), whole_story, seeds=12)
    assert cuts > 100


def test_a_power_cut_at_any_moment_of_a_round_over_several_segments_loses_nothing() -> None:
    def prepare(seed: int) -> CompactionWorld:
        config = dataclasses.replace(BIG, segment_bytes=1024, delete_retention_ms=0)
        world = filled("abcabc", "abA", "Bcd", "aab" * 3, "ddD", config=config, seed=seed)
        world.compact()
        world.now_ms += 1
        for letter in "xyzaaa":
            world.append(keyed(letter, letter))
        world.roll()
        return world

    assert power_cuts(prepare, whole_story, seeds=8) > 100


def test_a_killed_process_leaves_the_old_segment_or_the_new() -> None:
    for changes in range(10_000):
        world = filled("abcabc", "abA", "ccd")
        world.disk.faults.cut_power_after(changes)
        try:
            whole_story(world)
        except ProcessGone:
            # Not a power cut after all: what was written is there.
            world.disk.kill()
            world.come_back()
        else:
            break
    assert changes > 10


def killed_after(changes: int, *, seed: int) -> CompactionWorld | None:
    """A world whose process was killed there, and what the next one finds; None when it was never killed."""
    world = filled("abcabc", "abA", "ccd", seed=seed)
    world.disk.faults.cut_power_after(changes)
    try:
        whole_story(world)
    except ProcessGone:
        world.disk = world.disk.reopen()
        return world
    return None


def test_a_power_cut_while_the_next_start_tidies_up_loses_nothing() -> None:
    """The process was killed in the middle of a swap: its renames are seen, and not on the disk yet."""
    cuts, changes = 0, 0
    while (world := killed_after(changes, seed=0)) is not None:
        is_swapping = bool(names_in(world, ".log.swap"))
        # Before the first sync it takes more luck to see a loss.
        seeds = 40 if is_swapping and not cuts else 2
        for later in range(14 if is_swapping else 0):
            for seed in range(seeds):
                world = killed_after(changes, seed=100 * later + seed)
                assert world is not None
                world.disk.faults.cut_power_after(later)
                try:
                    world.open(clean=False)
                except ProcessGone:
                    cuts += 1
                world.crash_and_start()
        changes += 1
    assert cuts > 100


def test_a_power_cut_after_a_swap_leaves_no_old_segment_beside_the_new() -> None:
    for seed in range(80):
        world = filled("abcabc", "abA", "ccd", seed=seed)
        world.compact()
        world.crash_and_start()
