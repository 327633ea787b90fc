"""A log on a simulated disk beside the plainest model of one: a list of batches. Stories and random walks share it.

Whatever is done, `check` compares the two; whatever the disk does, `come_back` compares what is left with what must be.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from log.log_restarts import LogRestarts
from log.tail_check import TAIL_BYTES, check_tail
from respool.log.leader_epochs import EpochCache, EpochEntry
from respool.log.partition_log import (
    Appended,
    PartitionLog,
    PendingSync,
    ReadSpec,
    RemovedSegment,
    TailMemory,
)
from respool.log.producers.producer_states import ProducerStates
from respool.model.errors import DiskFull, OffsetOutOfRange, StorageError
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.ports.disk import NotCached
from respool.records.batch import BatchHeader, RecordBatch, read_header, stamp
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_disk import SimDisk

FOLDER = "rides-0"
FUZZ = os.environ.get("RESPOOL_FUZZ") == "long"
EXPIRATION_MS = 10**12
# Small enough that a few batches fill a segment and a few more an index.
SMALL = TopicConfig(
    segment_bytes=1500,
    index_interval_bytes=100,
    segment_index_bytes=120,
    segment_ms=40_000,
    retention_ms=-1,
)


def batch_of(
    *timestamps: int, value: bytes = b"v", producer: tuple[int, int, int] | None = None
) -> RecordBatch:
    """A produced batch with one record per timestamp; `producer` is id, epoch and first sequence."""
    producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
    data = build_batch(
        [NewRecord(value=value, timestamp_ms=timestamp) for timestamp in timestamps],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    return RecordBatch(read_header(data), data)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it must lie in the log."""

    header: BatchHeader
    data: bytes
    # Offset and timestamp of each record.
    records: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, batch: RecordBatch, *, base_offset: Offset, epoch: LeaderEpoch) -> "StoredBatch":
        head = stamp(batch.header, base_offset=base_offset, leader_epoch=epoch)
        data = head + bytes(batch.data[len(head) :])
        header = read_header(data)
        records = read_records(RecordBatch(header, data), limit=10**9)
        return cls(header, data, tuple((one.offset, one.timestamp) for one in records))

    @property
    def base_offset(self) -> Offset:
        return self.header.base_offset

    @property
    def last_offset(self) -> Offset:
        return self.header.last_offset


class LogWorld(LogRestarts):
    def __init__(self, disk: SimDisk, config: TopicConfig) -> None:
        self.disk = disk
        self.config = config
        self.now_ms = 1_000_000
        self.epoch = LeaderEpoch(0)
        # Every batch ever appended and not cut off again, also those that retention removed.
        self.batches: list[StoredBatch] = []
        # Where the list begins: not 0 after the log was started anew.
        self.begin = Offset(0)
        self.log_start = Offset(0)
        # The highest the log's start ever was. After a power cut it may be lower again, and records be
        # back whose producers are forgotten.
        self.forgotten_below = Offset(0)
        # Epochs, also those that have no data.
        self.epochs = EpochCache()
        # One that begins, while it is not known whether it got to the disk.
        self.announcing: EpochEntry | None = None
        # Everything below was reported as synced.
        self.safe_end = Offset(0)
        # What the broker wrote down last.
        self.recovery_point = Offset(0)
        self.log_start_written = Offset(0)
        # Something, or everything, is being cut off; a power cut may leave any of that.
        self.is_truncating = False
        self.is_starting_anew = False
        self.pending: list[PendingSync] = []
        self.removed: list[RemovedSegment] = []
        self.log: PartitionLog

    @classmethod
    def new(cls, seed: int = 0, config: TopicConfig = SMALL) -> "LogWorld":
        world = cls(SimDisk(Random(seed)), config)
        world.open(clean=False)
        return world

    def open(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            disk=self.disk,
            folder=FOLDER,
            config=self.config,
            now_ms=self.now_ms,
            log_start=self.log_start_written,
            recovery_point=self.recovery_point,
            clean=clean,
            producer_expiration_ms=EXPIRATION_MS,
            tails=TailMemory(TAIL_BYTES),
        )

    @property
    def log_end(self) -> Offset:
        return self.batches[-1].header.next_offset if self.batches else self.begin

    # -- doing -------------------------------------------------------------------------------------------------------

    def append(self, batch: RecordBatch) -> Appended:
        """Append, in both. A power cut in the middle may leave the batch whole."""
        stored = StoredBatch.of(batch, base_offset=self.log_end, epoch=self.epoch)
        # The first batch of an epoch that nobody announced announces it.
        if self.epochs.latest != self.epoch:
            self.announcing = EpochEntry(self.epoch, self.log_end)
        segments = self.log.segment_count
        try:
            appended = self.log.append(batch, leader_epoch=self.epoch, now_ms=self.now_ms)
        except ProcessGone:
            self.batches.append(stored)
            raise
        except StorageError:
            self._settle_epoch()
            raise
        if not appended.is_duplicate:
            has_rolled = self.log.segment_count != segments
            assert appended == (stored.base_offset, stored.last_offset, False, -1, has_rolled)
            self.batches.append(stored)
            self._settle_epoch()
        return appended

    def fill(self, count: int, *, size: int = 60) -> None:
        """Append batches of one to three records, a second apart."""
        for number in range(count):
            self.now_ms += 1000
            times = [self.now_ms + step for step in range(1 + number % 3)]
            self.append(batch_of(*times, value=bytes([number % 250]) * size))

    def begin_sync(self) -> None:
        if (pending := self.log.begin_sync()) is not None:
            self.pending.append(pending)

    def run_sync(self, index: int = 0) -> None:
        self.pending[index].run()

    def finish_sync(self, index: int = 0) -> None:
        self.log.finish_sync(self.pending.pop(index))
        assert self.log.synced_end <= self.log_end
        self.safe_end = self.log.synced_end

    def sync(self) -> None:
        self.begin_sync()
        while self.pending:
            self.run_sync()
            self.finish_sync()

    def write_checkpoint(self) -> None:
        self.recovery_point = self.log.synced_end
        self.log_start_written = self.log.log_start

    def lead(self) -> None:
        """A new leader epoch begins."""
        self.epoch = LeaderEpoch(self.epoch + 1)
        self.announcing = EpochEntry(self.epoch, self.log_end)
        self.log.on_leader_epoch(self.epoch)
        self._settle_epoch()

    def _settle_epoch(self) -> None:
        if self.announcing is not None and self.announcing in self.log._parts.epochs.entries:
            self.epochs.assign(*self.announcing)
        self.announcing = None

    def raise_log_start(self, offset: Offset) -> None:
        self.log.raise_log_start(offset)
        self.log_start = self.log.log_start
        self.forgotten_below = max(self.forgotten_below, self.log_start)

    def apply_retention(self, high_watermark: Offset) -> list[RemovedSegment]:
        try:
            removed = self.log.apply_retention(now_ms=self.now_ms, high_watermark=high_watermark)
        finally:
            self.log_start = self.log.log_start
            self.forgotten_below = max(self.forgotten_below, self.log_start)
            self.safe_end = self.log.synced_end
        self.removed += removed
        return removed

    def truncate_to(self, offset: Offset) -> None:
        """As a follower would: the recovery point is lowered first."""
        first = self.first_base()
        if offset < first:
            self.truncate_fully(offset)
            return
        cut = min(
            (one.base_offset for one in self.batches if one.last_offset >= offset), default=None
        )
        if cut is None:
            self.epochs.truncate_end(offset)
            self.is_truncating = True
            self.log.truncate_to(offset)
            self.is_truncating = False
            return
        self.recovery_point = min(self.recovery_point, cut)
        self.safe_end = min(self.safe_end, cut)
        self.log_start_written = min(self.log_start_written, cut)
        self.is_truncating = True
        self.log.truncate_to(offset)
        self.is_truncating = False
        self.pending_of_the_past()
        self.batches = [one for one in self.batches if one.last_offset < offset]
        self.epochs.truncate_end(cut)
        self.log_start = min(self.log_start, cut)
        self.forgotten_below = min(self.forgotten_below, cut)
        self.safe_end = self.log.synced_end

    def truncate_fully(self, offset: Offset) -> None:
        """Drop everything: by itself, or by truncating to before the first segment."""
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_written = min(self.log_start_written, offset)
        self.safe_end = Offset(0)
        self.is_starting_anew = self.is_truncating = True
        self.log.truncate_fully_and_start_at(offset)
        self._start_anew(offset)

    def _start_anew(self, offset: Offset) -> None:
        self.pending_of_the_past()
        self.batches = []
        self.begin = self.log_start = self.safe_end = self.forgotten_below = offset
        self.epochs = EpochCache()
        self.is_starting_anew = self.is_truncating = False
        self.write_checkpoint()

    def pending_of_the_past(self) -> None:
        """Syncs begun before a truncation may still run and finish; they must not say anything."""
        for pending in self.pending:
            before = self.log.synced_end
            pending.run()
            self.log.finish_sync(pending)
            assert self.log.synced_end == before
        self.pending.clear()

    def first_base(self) -> Offset:
        return Offset(
            min(int(name[:20]) for name in self.disk.list_folder(FOLDER) if name.endswith(".log"))
        )

    # -- ends and returns --------------------------------------------------------------------------------------------

    def compare_after_restart(self, *, at_least: Offset) -> None:
        self.pending.clear()
        self.removed.clear()
        log = self.log
        assert log.log_end >= min(at_least, self.log_end), (log.log_end, at_least)
        assert log.synced_end == log.log_end
        # Segments whose removal was lost may be back, but not below what was written down.
        if not self.is_starting_anew:
            limit = max(self.log_start, self.log_start_written)
            assert self.log_start_written <= log.log_start <= limit
        self.batches = [one for one in self.batches if one.last_offset < log.log_end]
        if self.is_starting_anew and log.log_start == log.log_end:
            self._start_anew(log.log_end)
            self.is_truncating = True
        self.is_starting_anew = False
        if self.log_end != log.log_end:
            # Everything that was left had been deleted: the log goes on where it was told to start.
            assert log.log_end == log.log_start == self.log_start_written > self.log_end
            self.batches, self.begin, self.epochs = [], log.log_end, EpochCache()
        self.log_start = log.log_start
        self._settle_epoch()
        self.epochs.truncate_end(Offset(log.log_end + 1))
        if self.is_truncating:
            # Whether an epoch without data went with it or not, the truncation will be done again.
            self.epochs = EpochCache.decode(log._parts.epochs._epochs.encode())
        self.is_truncating = False
        self.safe_end = log.log_end
        self.check()

    # -- looking -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """All that must be true at every moment."""
        log = self.log
        assert log.log_end == self.log_end
        assert log.log_start == self.log_start
        assert log.log_start <= log.log_end
        assert log.synced_end <= log.log_end
        self.check_bytes()
        check_tail(log)
        self.check_producers()
        self.check_epochs()

    def check_bytes(self) -> None:
        """Reading from start to end gives back every batch, byte for byte."""
        offset, parts = self.log_start, []
        while offset < self.log_end:
            data = self.log.read(ReadSpec(offset, max_offset=self.log_end, bytes_max=700))
            whole = self.whole_batches(data)
            assert whole, f"nothing at offset {offset}"
            parts += whole
            offset = read_header(whole[-1]).next_offset
        assert parts == [one.data for one in self.batches if one.last_offset >= self.log_start]

    @staticmethod
    def whole_batches(read: bytes | memoryview) -> list[bytes]:
        data, at = bytes(read), 0
        found = []
        while len(data) - at >= 61 and at + read_header(data, at).size <= len(data):
            size = read_header(data, at).size
            found.append(data[at : at + size])
            at += size
        return found

    def check_read(
        self, offset: Offset, *, max_offset: Offset, bytes_max: int, at_least_one: bool
    ) -> None:
        """One read, against the list."""

        def read() -> bytes:
            return bytes(
                self.log.read(
                    ReadSpec(
                        offset,
                        max_offset=max_offset,
                        bytes_max=bytes_max,
                        at_least_one=at_least_one,
                    )
                )
            )

        if not self.log_start <= offset <= self.log_end:
            try:
                read()
            except OffsetOutOfRange:
                return
            raise AssertionError(f"offset {offset} is outside and was read")
        data = read()
        visible = [one.data for one in self.batches if offset <= one.last_offset < max_offset]
        if not visible or offset >= max_offset:
            assert data == b""
            return
        first = len(visible[0])
        joined = b"".join(visible)
        limit = max(bytes_max, first) if at_least_one else bytes_max
        assert joined.startswith(data)
        assert len(data) <= limit
        if first > limit:
            assert data == b""
        elif len(data) < min(limit, len(joined)):
            # It may stop early where a segment ends, and nowhere else.
            following = read_header(joined, len(data)).base_offset
            assert self.disk.exists(f"{FOLDER}/{following:020d}.log"), f"stopped at {following}"

    def check_times(self, timestamp_ms: int, max_offset: Offset) -> None:
        """Both lookups by time, against every record."""
        visible = [
            (record[1], record[0], one.header.leader_epoch)
            for one in self.batches
            if one.last_offset < max_offset
            for record in one.records
            if record[0] >= self.log_start
        ]
        first = min((one[1:] + one[:1] for one in visible if one[0] >= timestamp_ms), default=None)
        found = self.log.first_at_or_after(timestamp_ms, max_offset=max_offset)
        assert (found and (found.offset, found.leader_epoch, found.timestamp)) == first
        with suppress(NotCached):
            assert found == self.log.first_at_or_after(
                timestamp_ms, max_offset=max_offset, quickly=True
            )
        timed = [one for one in visible if one[0] >= 0]
        latest = max(timed, key=lambda one: (one[0], -one[1]), default=None)
        found = self.log.latest_timestamp(max_offset=max_offset)
        assert (found and (found.timestamp, found.offset, found.leader_epoch)) == latest

    def check_producers(self) -> None:
        """The producers known are those the log alone tells of, and so are the batches they are known by."""
        assert self._remembered(self.log._parts.producers) == self._remembered(self.replayed())
        assert all(one.last_offset >= self.log_start for one in self.log.active_producers())

    def replayed(self) -> ProducerStates:
        states = ProducerStates(expiration_ms=EXPIRATION_MS)
        for one in self.batches:
            states.update(one.header, base_offset=one.base_offset)
        return states

    def _remembered(self, states: ProducerStates) -> dict[int, object]:
        begin = self.forgotten_below
        return {
            state.producer_id: (
                state.epoch,
                [one for one in state.batches if one.base_offset >= begin],
            )
            for state in states.active()
            if state.last_offset >= begin
        }

    def check_epochs(self) -> None:
        """The epochs known are those of the batches; one may begin at the end, without any."""
        rebuilt = EpochCache()
        for one in self.batches:
            if one.header.leader_epoch > rebuilt.latest:
                rebuilt.assign(one.header.leader_epoch, one.base_offset)
        rebuilt.truncate_start(self.log_start)
        found = self.log._parts.epochs.entries
        end = self.log_end
        with_data = [one for one in found if one.start_offset < end]
        assert with_data == [one for one in rebuilt.entries if one.start_offset < end]
        without = [one for one in found if one not in with_data]
        announced = [one for one in self.epochs.entries if one.start_offset == end]
        # Without any data, it may also be the epoch of what was deleted last. And where the log's start is back
        # where it was, the file may have followed it up already, beyond what is left.
        assert (
            without == announced
            or (not announced and without == rebuilt.entries[-1:])
            or (not without and self.forgotten_below > end)
        )

    def check_indexes(self) -> None:
        """Every entry points at a batch, as Kafka's own dump tool would check it."""
        by_last = {one.last_offset: one for one in self.batches}
        for segment in self.log._parts.segments.all:
            if not segment.size:
                continue
            indexes = segment.indexes()
            for entry in indexes.offsets:
                assert segment.read(entry.position, 8) == by_last[entry.last_offset].data[:8]
            for time in indexes.times:
                assert by_last[time.last_offset].header.max_timestamp == time.timestamp
            limit = self.config.segment_index_bytes
            for kind in ("index", "timeindex"):
                path = f"{FOLDER}/{segment.base_offset:020d}.{kind}"
                assert not self.disk.exists(path) or self.disk.size(path) <= limit
            for entries in (list(indexes.offsets), list(indexes.times)):
                assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))

    def try_full_disk(self, batch: RecordBatch, *, room: int) -> None:
        """Append with so much room left; whether it fits or not, the two stay together."""
        self.disk.faults.capacity_bytes = 0
        used = sum(self.disk.size(f"{FOLDER}/{name}") for name in self.disk.list_folder(FOLDER))
        self.disk.faults.capacity_bytes = used + room
        try:
            self.append(batch)
        except DiskFull:
            pass
        finally:
            self.disk.faults.capacity_bytes = None
        self.check()


def power_cuts(story: Callable[[LogWorld], None], *, seeds: int = 3) -> int:
    """Tell a story again and again, with the power going at each of its changes to the disk; count the cuts."""
    cuts = 0
    for seed in range(seeds):
        for changes in range(10_000):
            world = LogWorld.new(seed)
            world.disk.faults.cut_power_after(changes)
            try:
                story(world)
            except ProcessGone:
                world.disk.crash()
                world.come_back()
                cuts += 1
            else:
                break
    return cuts
