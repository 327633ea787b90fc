"""What a leader sent, appended by a follower: its bytes and nothing else, or nothing at all."""

from random import Random

import pytest

from log.log_world import EXPIRATION_MS, FOLDER, SMALL, LogWorld, batch_of
from log.transaction_world import KEPT, TransactionWorld
from respool.log.partition_log import AppendedFetched, PartitionLog, ReadSpec
from respool.model.errors import CorruptMessage, DiskFailed, DiskFull, ReplicationDiverged
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.records.batch import read_header
from respool.records.validate import walk_batches
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_disk import SimDisk

NOW = 2_000_000


class Copy:
    """A follower's log on its own disk."""

    def __init__(self, *, log_start: int = 0, config: TopicConfig = SMALL, seed: int = 1) -> None:
        self.disk = SimDisk(Random(seed))
        # Everything before was reported as synced.
        self.synced_end = Offset(0)
        self.config = config
        self.log_start = Offset(log_start)
        self.log = self._open()

    def _open(self) -> PartitionLog:
        return PartitionLog.open(
            disk=self.disk,
            folder=FOLDER,
            config=self.config,
            now_ms=NOW,
            log_start=self.log_start,
            recovery_point=self.log_start,
            clean=False,
            producer_expiration_ms=EXPIRATION_MS,
            is_replicated=True,
        )

    def fetch_all(self, leader: PartitionLog, *, bytes_max: int = 900, syncs: bool = False) -> None:
        """Fetch as a follower does until there is nothing more."""
        while self.log.log_end < leader.log_end:
            data = leader.read(
                ReadSpec(
                    self.log.log_end,
                    max_offset=leader.log_end,
                    bytes_max=bytes_max,
                )
            )
            before = self.log.log_end
            assert self.log.append_fetched(data, now_ms=NOW).log_end > before
            if syncs:
                self.sync()

    def sync(self) -> None:
        pending = self.log.begin_sync()
        if pending is not None:
            pending.run()
            self.log.finish_sync(pending)
        self.synced_end = self.log.synced_end

    def stored(self) -> bytes:
        return bytes_of(self.log)

    def crash_and_start(self) -> None:
        self.sync()
        self.come_back()

    def come_back(self) -> None:
        """The power goes, and comes back."""
        self.disk.crash()
        self.disk = self.disk.reopen()
        self.log = self._open()

    def is_unchanged_by(self, records: bytes, error: type[Exception], match: str) -> None:
        before = (self.log.log_end, self.stored(), self.log._parts.epochs.entries)
        with pytest.raises(error, match=match):
            self.log.append_fetched(records, now_ms=NOW)
        assert (self.log.log_end, self.stored(), self.log._parts.epochs.entries) == before


def bytes_of(log: PartitionLog) -> bytes:
    parts = log._parts.segments.all
    return b"".join(one.read(0, one.size) for one in parts if one.size)


def filled() -> LogWorld:
    world = LogWorld.new()
    world.fill(15)
    world.lead()
    world.fill(15)
    world.lead()
    world.fill(10)
    return world


def replies(world: LogWorld, begin: int = 0, end: int = 10**6) -> bytes:
    """The batches of the model with these numbers."""
    return b"".join(one.data for one in world.batches[begin:end])


# What comes in


@pytest.mark.parametrize("bytes_max", [1, 300, 900, 10**6])
def test_a_copy_is_the_leaders_log_byte_for_byte(bytes_max: int) -> None:
    leader, copy = filled(), Copy()
    copy.fetch_all(leader.log, bytes_max=bytes_max)
    assert copy.stored() == bytes_of(leader.log)
    assert copy.log._parts.epochs.entries == leader.log._parts.epochs.entries
    # Its own disk and clock, the same limits: also the segments are the same.
    bases = [one.base_offset for one in leader.log._parts.segments.all]
    assert [one.base_offset for one in copy.log._parts.segments.all] == bases
    # The leader's checks of a log go for the copy too, indexes and lookups by time among them.
    leader.log, leader.disk = copy.log, copy.disk
    leader.check()
    leader.check_indexes()
    leader.check_times(leader.now_ms - 20_000, leader.log_end)
    copy.crash_and_start()
    leader.log, leader.disk = copy.log, copy.disk
    leader.check()
    leader.check_indexes()


def test_what_was_appended_is_told() -> None:
    leader, copy = filled(), Copy()
    data = replies(leader, 0, 20)
    end = leader.batches[19].header.next_offset
    assert copy.log.append_fetched(data, now_ms=NOW) == AppendedFetched(
        end, LeaderEpoch(1), len(data), has_rolled=copy.log.segment_count > 1
    )
    assert copy.log.last_epoch == 1


def test_nothing_in_a_reply_changes_nothing() -> None:
    copy = Copy()
    assert copy.log.append_fetched(b"", now_ms=NOW) == (0, -1, 0, False)


def test_batches_that_are_here_already_are_passed_over() -> None:
    leader, copy = filled(), Copy()
    copy.log.append_fetched(replies(leader, 0, 5), now_ms=NOW)
    done = copy.log.append_fetched(replies(leader, 3, 8), now_ms=NOW)
    assert done.byte_count == len(replies(leader, 5, 8))
    assert copy.stored() == replies(leader, 0, 8)
    assert copy.log.append_fetched(replies(leader, 2, 6), now_ms=NOW).byte_count == 0


@pytest.mark.parametrize("cut", [1, 11, 60, 61, 62, 100])
def test_a_batch_that_is_cut_off_is_left_for_the_next_reply(cut: int) -> None:
    leader, copy = filled(), Copy()
    whole = replies(leader, 0, 3)
    data = whole + replies(leader, 3, 4)[:cut]
    assert copy.log.append_fetched(data, now_ms=NOW).byte_count == len(whole)
    assert copy.stored() == whole


def test_a_leaders_gaps_stay_gaps() -> None:
    leader, copy = filled(), Copy()
    left = [one for number, one in enumerate(leader.batches) if number % 3 != 1]
    copy.log.append_fetched(b"".join(one.data for one in left), now_ms=NOW)
    assert copy.stored() == b"".join(one.data for one in left)
    assert copy.log.log_end == leader.log_end
    gone = leader.batches[1].base_offset
    found = copy.log.read(ReadSpec(gone, max_offset=copy.log.log_end, bytes_max=1))
    assert found == left[1].data
    # Behind a gap too, what was synced is there after a power cut: the leader was told so.
    copy.crash_and_start()
    assert copy.log.log_end == leader.log_end
    assert copy.stored() == b"".join(one.data for one in left)


def led_twice_and_compacted() -> tuple[Copy, Copy, list[bytes]]:
    """Two logs that agree on epoch 2 up to offset 10. The first wrote 5 more; the second led in epoch 3.

    And the batches that compaction left of the second: 8 and 9 are gone, and 10 to 14 of epoch 3.
    """
    roomy = TopicConfig(retention_ms=-1)
    old, new = Copy(config=roomy), Copy(config=roomy)

    def append(copy: Copy, epoch: int, count: int) -> None:
        copy.log.on_leader_epoch(LeaderEpoch(epoch))
        for number in range(count):
            batch = batch_of(NOW, value=b"%d of %d" % (number, epoch))
            copy.log.append(batch, leader_epoch=LeaderEpoch(epoch), now_ms=NOW)

    append(old, 2, 10)
    new.fetch_all(old.log)
    append(old, 2, 5)
    append(new, 3, 10)
    stored = new.stored()
    batches = [stored[at : at + header.size] for at, header in walk_batches(stored)]
    return old, new, batches[:8] + batches[15:]


def test_an_epoch_behind_a_gap_begins_where_the_log_ended() -> None:
    """The first one's tail, which nobody else ever had, lies in the gap: it was taken for the leader's, and kept."""
    old, new, left = led_twice_and_compacted()
    copy = Copy(config=new.config)
    copy.log.append_fetched(b"".join(left), now_ms=NOW)
    assert new.log.end_of_epoch(LeaderEpoch(2)) == (2, 10)
    assert copy.log.end_of_epoch(LeaderEpoch(2)) == (2, 8)
    assert old.log.log_end == 15
    # Nor is it forgotten by a recovery, with the file of the epochs and without it.
    copy.sync()
    for _ in range(2):
        copy.crash_and_start()
        assert copy.log.end_of_epoch(LeaderEpoch(2)) == (2, 8)
        copy.disk.delete(f"{FOLDER}/leader-epoch-checkpoint")


def test_a_recovery_knows_from_the_file_where_in_a_gap_an_epoch_began() -> None:
    _, new, left = led_twice_and_compacted()
    copy = Copy(config=new.config)
    copy.log.append_fetched(b"".join(left[:8]), now_ms=NOW)
    copy.log._parts.epochs.begin(LeaderEpoch(3), Offset(10))
    copy.log.append_fetched(b"".join(left[8:]), now_ms=NOW)
    copy.sync()
    copy.crash_and_start()
    assert copy.log.end_of_epoch(LeaderEpoch(2)) == (2, 10)


def test_an_epoch_that_compaction_left_nothing_of_is_known_after_a_crash() -> None:
    """Its offsets were taken for the epoch's before it, which had ended."""
    roomy = TopicConfig(retention_ms=-1)
    leader, copy = Copy(config=roomy), Copy(config=roomy)
    for epoch, count in ((5, 10), (6, 3), (7, 4)):
        leader.log.on_leader_epoch(LeaderEpoch(epoch))
        for _ in range(count):
            leader.log.append(batch_of(NOW), leader_epoch=LeaderEpoch(epoch), now_ms=NOW)
    stored = leader.stored()
    left = [
        stored[at : at + header.size]
        for at, header in walk_batches(stored)
        if header.leader_epoch != 6
    ]
    copy.log.append_fetched(b"".join(left[:10]), now_ms=NOW)
    # It was there once.
    copy.log._parts.epochs.begin(LeaderEpoch(6), Offset(10))
    copy.log._parts.epochs.begin(LeaderEpoch(7), Offset(13))
    copy.log.append_fetched(b"".join(left[10:]), now_ms=NOW)
    assert copy.log._parts.epochs.entries == leader.log._parts.epochs.entries
    copy.sync()
    copy.crash_and_start()
    assert copy.log._parts.epochs.entries == leader.log._parts.epochs.entries
    assert copy.log.end_of_epoch(LeaderEpoch(5)) == (5, 10)


def test_one_write_takes_all_that_goes_to_one_segment() -> None:
    leader = LogWorld.new(config=TopicConfig())
    leader.fill(50)
    copy = Copy(config=TopicConfig())
    copy.log.append_fetched(replies(leader, 0, 1), now_ms=NOW)
    before = copy.disk.counters.appends
    copy.log.append_fetched(replies(leader, 1), now_ms=NOW)
    assert copy.disk.counters.appends == before + 1
    assert copy.stored() == replies(leader)


def test_a_log_that_starts_inside_a_batch_of_the_leader_gets_that_batch() -> None:
    leader = LogWorld.new()
    leader.append(batch_of(1, 2, 3))
    leader.append(batch_of(4, 5, 6))
    leader.append(batch_of(7))
    copy = Copy(log_start=4)
    copy.log.append_fetched(replies(leader, 1), now_ms=NOW)
    assert (copy.log.log_start, copy.log.log_end) == (4, 7)
    assert copy.stored() == replies(leader, 1)
    copy.crash_and_start()
    assert (copy.log.log_start, copy.log.log_end) == (4, 7)


def test_a_full_disk_leaves_a_log_that_starts_inside_a_batch_where_it_was() -> None:
    leader = LogWorld.new()
    leader.append(batch_of(1, 2, 3, value=b"v" * 5000))
    copy = Copy(log_start=1)
    copy.disk.faults.capacity_bytes = copy.disk.used_bytes + 2 * 4096 + 1000
    with pytest.raises(DiskFull):
        copy.log.append_fetched(replies(leader), now_ms=NOW)
    assert (copy.log.log_start, copy.log.log_end) == (1, 1)
    copy.disk.faults.capacity_bytes = None
    copy.log.append_fetched(replies(leader), now_ms=NOW)
    assert (copy.log.log_start, copy.log.log_end) == (1, 3)


# Epochs


def test_an_epoch_that_nobody_wrote_in_gives_way_to_an_older_leaders_batches() -> None:
    leader, copy = filled(), Copy()
    copy.log.append_fetched(replies(leader, 0, 5), now_ms=NOW)
    end = copy.log.log_end
    copy.log.on_leader_epoch(LeaderEpoch(7))
    assert copy.log.last_epoch == 0
    copy.log.append_fetched(replies(leader, 5, 20), now_ms=NOW)
    assert [one.epoch for one in copy.log._parts.epochs.entries] == [0, 1]
    assert copy.log.epoch_at(end) == 0


def test_an_epoch_is_on_the_disk_before_its_first_batch() -> None:
    leader, copy = filled(), Copy()
    copy.disk.faults.fail("append", path="*.log")
    with pytest.raises(DiskFailed):
        copy.log.append_fetched(replies(leader, 15, 16), now_ms=NOW)
    copy.disk.faults.heal()
    assert copy.disk.read_file(f"{FOLDER}/leader-epoch-checkpoint") is not None


def test_batches_of_another_cluster_get_the_epoch_of_this_one() -> None:
    leader, copy = filled(), Copy()
    copy.log.append_fetched(replies(leader), now_ms=NOW, leader_epoch=LeaderEpoch(9))
    assert [one.epoch for one in copy.log._parts.epochs.entries] == [9]
    assert copy.log.last_epoch == 9
    stored, sent = LogWorld.whole_batches(copy.stored()), [one.data for one in leader.batches]
    assert [one[:12] + one[16:] for one in stored] == [one[:12] + one[16:] for one in sent]
    assert {read_header(one).leader_epoch for one in stored} == {9}
    copy.crash_and_start()
    assert copy.log.log_end == leader.log_end


# What is refused


@pytest.mark.parametrize("byte", [8, 16, 17, 22, 30, 70])
def test_a_damaged_batch_is_refused_and_those_before_it_too(byte: int) -> None:
    leader, copy = filled(), Copy()
    copy.log.append_fetched(replies(leader, 0, 2), now_ms=NOW)
    data = bytearray(replies(leader, 2, 6))
    data[len(replies(leader, 2, 4)) + byte] ^= 0x80
    copy.is_unchanged_by(bytes(data), CorruptMessage, "is corrupt at byte")


def test_a_batch_across_the_logs_end_is_refused() -> None:
    leader, other, copy = LogWorld.new(), LogWorld.new(), Copy()
    leader.append(batch_of(1, 2))
    other.append(batch_of(1, 2, 3))
    copy.log.append_fetched(replies(leader), now_ms=NOW)
    copy.is_unchanged_by(replies(other), ReplicationDiverged, "from 0 to 2 where 2 comes next")


def test_offsets_that_go_back_are_refused() -> None:
    leader, copy = filled(), Copy()
    data = replies(leader, 3, 5) + replies(leader, 1, 3)
    copy.is_unchanged_by(data, ReplicationDiverged, "comes next")
    copy.is_unchanged_by(replies(leader, 3, 4) * 2, ReplicationDiverged, "comes next")


def test_an_older_leaders_batch_after_a_newers_is_refused() -> None:
    leader, old, copy = filled(), LogWorld.new(), Copy()
    old.fill(40)
    copy.log.append_fetched(replies(leader, 0, 20), now_ms=NOW)
    copy.is_unchanged_by(replies(old, 20), ReplicationDiverged, "leader epoch 0, .* of 1")
    data = replies(leader, 20, 30) + replies(old, 30)
    copy.is_unchanged_by(data, ReplicationDiverged, "is of leader epoch 0")


def test_a_gap_that_no_segment_can_span_is_refused() -> None:
    leader, copy = LogWorld.new(), Copy()
    leader.append(batch_of(1))
    far = (2**31).to_bytes(8) + replies(leader)[8:]
    copy.is_unchanged_by(far, ReplicationDiverged, "no segment spans more")
    near = (2**31 - 1).to_bytes(8) + replies(leader)[8:]
    assert copy.log.append_fetched(near, now_ms=NOW).log_end == 2**31


def test_a_full_disk_leaves_a_beginning_of_what_came() -> None:
    leader, copy = filled(), Copy()
    copy.log.append_fetched(replies(leader, 0, 1), now_ms=NOW)
    copy.disk.faults.capacity_bytes = copy.disk.used_bytes + 4000
    with pytest.raises(DiskFull):
        copy.log.append_fetched(replies(leader, 1), now_ms=NOW)
    assert 1 <= len(LogWorld.whole_batches(copy.stored())) < len(leader.batches)
    assert replies(leader).startswith(copy.stored())
    copy.disk.faults.capacity_bytes = None
    copy.fetch_all(leader.log)
    assert copy.stored() == replies(leader)


# Producers and transactions


def test_producers_are_those_the_leader_knows() -> None:
    leader, copy = LogWorld.new(), Copy()
    for number in range(30):
        leader.append(batch_of(1, producer=(number % 4, 0, number // 4)))
    copy.fetch_all(leader.log)
    assert copy.log._parts.producers == leader.log._parts.producers


def test_transactions_end_and_aborted_ones_are_known() -> None:
    leader, copy = TransactionWorld.new(), Copy(config=KEPT)
    leader.write(1, "a")
    leader.write(2, "b")
    leader.write(-1, "c")
    leader.end(1, is_commit=False)
    leader.write(1, "d")
    leader.end(2, is_commit=True)
    copy.fetch_all(leader.log, bytes_max=10**6)
    assert copy.log._parts.producers == leader.log._parts.producers
    assert [one.aborted.all() for one in copy.log._parts.segments.all] == [
        one.aborted.all() for one in leader.log._parts.segments.all
    ]
    # The ends count when they are committed, and not before.
    end = copy.log.log_end
    for high_watermark in range(end + 1):
        leader.log.on_high_watermark(Offset(high_watermark))
        copy.log.on_high_watermark(Offset(high_watermark))
        stable = leader.log.last_stable_offset(Offset(high_watermark))
        assert copy.log.last_stable_offset(Offset(high_watermark)) == stable
    assert copy.log.last_stable_offset(end) == 4
    assert copy.log.has_open_transaction(1)
    assert not copy.log.has_open_transaction(2)


# Whatever the disk does


@pytest.mark.parametrize("offset", range(79))
def test_a_log_with_gaps_is_cut_off_where_its_batches_end(offset: int) -> None:
    leader, copy = filled(), Copy()
    left = [one for number, one in enumerate(leader.batches) if number % 3 == 1]
    copy.log.append_fetched(b"".join(one.data for one in left), now_ms=NOW)
    kept = [one for one in left if one.last_offset < offset]
    end = kept[-1].header.next_offset if kept else 0
    assert copy.log.end_after_truncation(Offset(offset)) == (
        copy.log.log_end if kept == left else end
    )
    copy.log.truncate_to(Offset(offset))
    assert copy.log.log_end == end
    assert copy.stored() == b"".join(one.data for one in kept)
    copy.crash_and_start()
    assert copy.log.log_end == end
    copy.log.append_fetched(replies(leader), now_ms=NOW)
    assert copy.log.log_end == leader.log_end


def test_the_power_may_go_at_any_moment() -> None:
    leader = filled()
    for changes in range(1000):
        copy = Copy(seed=changes)
        copy.disk.faults.cut_power_after(changes)
        try:
            copy.fetch_all(leader.log, syncs=True)
        except ProcessGone:
            copy.come_back()
        else:
            break
        assert copy.log.log_end >= copy.synced_end
        assert replies(leader).startswith(copy.stored())
        copy.fetch_all(leader.log)
        assert copy.stored() == replies(leader)
        assert copy.log._parts.epochs.entries == leader.log._parts.epochs.entries
    assert changes > 40
