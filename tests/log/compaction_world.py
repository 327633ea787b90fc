"""A compacted log on a simulated disk beside the plainest model of one: every record ever appended, in a list.

What a compacted log may hold is not one thing but a range: a record that is not the newest of its key may still be
there, and a deletion may be gone once its time is over. `check` knows the range; `state` is what any reader makes of it
in the end, and that must always be what the list says.
"""

import os
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import NamedTuple

from log.log_restarts import LogRestarts
from log.tail_check import TAIL_BYTES, check_tail
from respool.columnar.compiled_scan import CompiledScanner
from respool.log.batch_walk import BatchAt
from respool.log.compaction import batch_chunks
from respool.log.partition_log import (
    Compaction,
    CompactionTools,
    PartitionLog,
    ReadSpec,
    RemovedSegment,
    TailMemory,
)
from respool.log.producers.producer_states import ProducerStates
from respool.model.errors import OffsetOutOfRange
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.ports.record_scan import RecordScanner
from respool.records.batch import BatchHeader, Codec, RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.plain_scan import KEY_BYTES, PlainScanner
from respool.records.record import Record, read_records
from respool.records.validate import check_stored
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_disk import SimDisk

FOLDER = "rides-0"
FUZZ = os.environ.get("RESPOOL_FUZZ") == "long"
EXPIRATION_MS = 10**12
EPOCH = LeaderEpoch(0)
START = Offset(0)
SCANNERS: tuple[RecordScanner, ...] = (PlainScanner(), CompiledScanner())
COMPACT = TopicConfig.parse(
    {
        "cleanup.policy": "compact",
        "segment.bytes": "1024",
        "index.interval.bytes": "100",
        "segment.index.bytes": "120",
        "segment.ms": "100000000",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "1000",
        "retention.ms": "-1",
    }
)


def batch_of(
    *records: NewRecord,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
    log_append_time: bool = False,
) -> RecordBatch:
    """A produced batch; `producer` is id, epoch and first sequence."""
    producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
    data = build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        log_append_time=log_append_time,
    )
    return RecordBatch(read_header(data), data)


def keyed(key: bytes | str | None, value: bytes | str | None = b"v", at_ms: int = 0) -> NewRecord:
    return NewRecord(
        key=key.encode() if isinstance(key, str) else key,
        value=value.encode() if isinstance(value, str) else value,
        timestamp_ms=at_ms,
    )


class Found(NamedTuple):
    """A batch as it lies in the log."""

    header: BatchHeader
    records: list[Record]


@dataclass
class CompactionWorld(LogRestarts):
    disk: SimDisk
    config: TopicConfig = COMPACT
    scanner: RecordScanner = SCANNERS[0]
    now_ms: int = 1_000_000
    # Every record ever appended and not cut off again, and the headers they came with.
    history: list[Record] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    # How far compactions were ever meant to go: beyond it nothing may be missing.
    touched_end: Offset = START
    # Of deletions that a compaction was meant to reach: the earliest time at which they may go.
    horizons: dict[Offset, int] = field(default_factory=dict)
    # What the broker wrote down last.
    recovery_point: Offset = START
    log_start_written: Offset = START
    cleaned_end_written: Offset | None = None
    # Everything below was reported as synced.
    safe_end: Offset = START
    # The highest the log's start ever was.
    forgotten_below: Offset = START
    # The latest time at which a compaction began.
    compacted_at_ms: int = -1
    compaction: Compaction | None = None
    removed: list[RemovedSegment] = field(default_factory=list)
    log: PartitionLog = field(init=False)

    @classmethod
    def new(cls, seed: int = 0, config: TopicConfig = COMPACT) -> "CompactionWorld":
        # So small that a segment is read in pieces.
        batch_chunks.READ_BYTES = 300
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
            cleaned_end=self.cleaned_end_written,
            tails=TailMemory(TAIL_BYTES),
        )

    @property
    def log_end(self) -> Offset:
        return self.headers[-1].next_offset if self.headers else Offset(0)

    # -- doing -------------------------------------------------------------------------------------------------------

    def append(self, *records: NewRecord, **batch: object) -> None:
        self.append_batch(batch_of(*records, **batch))  # type: ignore[arg-type]

    def append_batch(self, batch: RecordBatch) -> None:
        header = batch.header._replace(base_offset=self.log_end, leader_epoch=EPOCH)
        stored = [
            replace(one, offset=Offset(self.log_end + one.offset))
            for one in read_records(batch, limit=10**7)
        ]
        try:
            appended = self.log.append(batch, leader_epoch=EPOCH, now_ms=self.now_ms)
        except ProcessGone:
            # It may be whole on the disk.
            self.headers.append(header)
            self.history += stored
            raise
        assert not appended.is_duplicate
        assert appended.base_offset == self.log_end
        self.headers.append(header)
        self.history += stored

    def sync(self) -> None:
        if (pending := self.log.begin_sync()) is not None:
            pending.run()
            self.log.finish_sync(pending)
        self.safe_end = self.log.synced_end

    def roll(self) -> None:
        """Begin a new segment, and have the old ones on the disk: now they can be compacted."""
        self.log._parts.roll(self.now_ms)
        self.sync()

    def write_checkpoint(self) -> None:
        self.recovery_point = self.log.synced_end
        self.log_start_written = self.log.log_start
        self.cleaned_end_written = self.log.cleaned_end

    def begin(self, *, keys_max: int = 1000, slice_bytes: int = 10**9) -> bool:
        tools = CompactionTools(
            scanner=self.scanner,
            memory_bytes_max=keys_max * KEY_BYTES,
            secret=b"0123456789abcdef",
            slice_bytes=slice_bytes,
        )
        begun = self.log.begin_compaction(
            now_ms=self.now_ms, bound=self.log.synced_end, tools=tools
        )
        if begun is None:
            return False
        self.compaction = begun
        self.compacted_at_ms = max(self.compacted_at_ms, self.now_ms)
        self.touched_end = max(self.touched_end, begun.end)
        for one in self.history:
            if one.value is None and one.offset < begun.end:
                horizon = self.now_ms + self.config.delete_retention_ms
                self.horizons.setdefault(one.offset, horizon)
        return True

    def run(self) -> None:
        assert self.compaction is not None
        self.compaction.run()

    def finish(self) -> None:
        compaction = self.compaction
        assert compaction is not None
        self.removed += self.log.finish_compaction(compaction)
        if compaction.is_complete:
            self.compaction = None
            if not compaction.is_abandoned and not compaction.is_partial:
                self.check_compacted(compaction.end)

    def compact(self, *, keys_max: int = 1000) -> bool:
        """A whole round; False when it is not due."""
        if not self.begin(keys_max=keys_max):
            return False
        self.go_on_to_the_end()
        return True

    def go_on_to_the_end(self) -> None:
        while self.compaction is not None:
            if self.compaction.cleaned is None:
                self.run()
            self.finish()

    def fail_compaction(self) -> None:
        """What the broker does when a slice fails."""
        compaction, self.compaction = self.compaction, None
        assert compaction is not None
        self.log.fail_compaction(compaction)

    def delete_removed(self) -> None:
        while self.removed:
            self.removed.pop(0).delete()

    # -- ends and returns --------------------------------------------------------------------------------------------

    def compare_after_restart(self, *, at_least: Offset) -> None:
        self.compaction = None
        self.removed.clear()
        log = self.log
        assert log.log_end >= min(at_least, self.log_end), (log.log_end, at_least)
        self.headers = [one for one in self.headers if one.next_offset <= log.log_end]
        self.history = [one for one in self.history if one.offset < log.log_end]
        assert self.log_end == log.log_end
        assert log.cleaned_end <= log.log_end
        self.safe_end = log.synced_end
        names = self.disk.list_folder(FOLDER)
        assert not [one for one in names if one.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]
        self.check()

    # -- looking -----------------------------------------------------------------------------------------------------

    def headers_on_disk(self) -> list[BatchAt]:
        """All that lies in the segments from the log's start on, read past the log."""
        return [
            one
            for segment in self.log._parts.segments.all
            for one in segment.walk_from(segment.base_offset)
            if one.header.last_offset >= self.log.log_start
        ]

    def batches(self) -> list[Found]:
        """Everything readers see, by reading from the log's start to its end, each batch checked."""
        offset, found = self.log.log_start, []
        while offset < self.log.log_end:
            data = self.log.read(ReadSpec(offset, max_offset=self.log.log_end, bytes_max=700))
            at = 0
            while len(data) - at >= 61 and at + read_header(data, at).size <= len(data):
                header = read_header(data, at)
                whole = data[at : at + header.size]
                assert check_stored(header, whole)
                assert header.last_offset >= offset
                found.append(Found(header, read_records(RecordBatch(header, whole), limit=10**7)))
                offset = header.next_offset
                at += header.size
            assert at, f"nothing at offset {offset} of {self.log.log_end}"
        return found

    def records(self) -> list[Record]:
        return [
            one
            for batch in self.batches()
            for one in batch.records
            if one.offset >= self.log.log_start
        ]

    def values(self) -> list[tuple[int, str | None, str | None]]:
        """Offset, key and value of each record, for reading in tests."""
        return [
            (
                one.offset,
                one.key.decode() if one.key is not None else None,
                one.value.decode() if one.value is not None else None,
            )
            for one in self.records()
        ]

    def state(self) -> dict[bytes, bytes]:
        """What a reader who starts at the beginning knows in the end."""
        return state_of(self.records())

    def check(self) -> None:
        """All that must be true at every moment."""
        log = self.log
        assert log.log_end == self.log_end
        check_tail(log)
        batches = self.batches()
        records = [one for batch in batches for one in batch.records if one.offset >= log.log_start]
        known = {one.offset: one for one in self.history}
        offsets = [one.offset for one in records]
        assert offsets == sorted(set(offsets))
        # Nothing is invented, nothing is changed.
        assert [known[one.offset] for one in records] == records
        there = set(offsets)
        newest: dict[bytes, Record] = {}
        for one in self.history:
            if one.key is not None:
                newest[one.key] = one
            if one.offset >= max(self.touched_end, log.log_start):
                assert one.offset in there, f"{one} is beyond {self.touched_end} and gone"
        for one in newest.values():
            if one.offset < log.log_start or one.offset in there:
                continue
            # A deletion, and only when readers had time to see it.
            assert one.value is None, f"the newest of its key is gone: {one}"
            horizon = self.horizons.get(one.offset)
            assert horizon is not None, f"{one} went before it was compacted"
            assert horizon <= self.compacted_at_ms, f"{one} went before {horizon}"
        visible = [one for one in self.history if one.offset >= log.log_start]
        assert state_of(records) == state_of(visible)
        self.check_segments()
        self.check_producers()

    def check_compacted(self, end: Offset) -> None:
        """A round has ended there: no key twice below, and no record without a key."""
        below = [one for one in self.records() if one.offset < end]
        keys = [one.key for one in below]
        assert None not in keys
        assert len(keys) == len(set(keys)), "a key is there twice"
        last = {one.key: one.offset for one in self.history if one.offset < end}
        assert all(last[one.key] == one.offset for one in below)

    def check_segments(self) -> None:
        """No segment is empty, each ends where the next begins, and the indexes point at batches."""
        segments = self.log._parts.segments.all
        for segment, following in pairwise(segments):
            assert segment.size > 0
            assert segment.next_offset() == following.base_offset
        for segment in segments:
            if not segment.size:
                continue
            found = {one.header.last_offset: one for one in segment.walk_from(segment.base_offset)}
            indexes = segment.indexes()
            for entry in indexes.offsets:
                assert found[entry.last_offset].position == entry.position
            for time in indexes.times:
                assert found[time.last_offset].header.latest_timestamp == time.timestamp
            largest = max((one.header.latest_timestamp for one in found.values()), default=-1)
            assert segment.largest.timestamp == largest

    def check_producers(self) -> None:
        """Whoever sends one of its last batches again is recognised."""
        replayed = ProducerStates(expiration_ms=EXPIRATION_MS)
        for header in self.headers:
            replayed.update(header, base_offset=header.base_offset)
        assert self._remembered(self.log._parts.producers) == self._remembered(replayed)

    def _remembered(self, states: ProducerStates) -> dict[int, object]:
        begin = self.forgotten_below
        return {
            state.producer_id: (
                state.epoch,
                # Less their times: of a batch that lost records that is the largest of those left.
                [one[:3] for one in state.batches if one.base_offset >= begin],
            )
            for state in states.active()
            if state.last_offset >= begin
        }

    def check_read(self, offset: Offset) -> None:
        """A read at any offset begins with the batch that holds it, or the next there is."""
        if not self.log.log_start <= offset <= self.log.log_end:
            try:
                self.log.read(ReadSpec(offset, max_offset=self.log_end, bytes_max=1))
            except OffsetOutOfRange:
                return
            raise AssertionError(f"offset {offset} is outside and was read")
        data = self.log.read(ReadSpec(offset, max_offset=self.log_end, bytes_max=1))
        reaching = [
            one.header for one in self.headers_on_disk() if one.header.last_offset >= offset
        ]
        # The first that has records; headers without any only where nothing else comes.
        first = reaching[0] if reaching else None
        expected = next((one for one in reaching if one.record_count), first)
        if expected is None:
            assert data == b""
        else:
            assert read_header(data) == expected

    def check_times(self, timestamp_ms: int, max_offset: Offset) -> None:
        """Both lookups by time, against every record that is there."""
        visible = [
            one
            for batch in self.batches()
            if batch.header.next_offset <= max_offset
            for one in batch.records
            if one.offset >= self.log.log_start
        ]
        first = next((one for one in visible if one.timestamp >= timestamp_ms), None)
        found = self.log.first_at_or_after(timestamp_ms, max_offset=max_offset)
        assert (found and found[:2]) == (first and (first.offset, first.timestamp))
        latest = max(
            (one for one in visible if one.timestamp >= 0),
            key=lambda one: (one.timestamp, -one.offset),
            default=None,
        )
        found = self.log.latest_timestamp(max_offset=max_offset)
        assert (found and found[:2]) == (latest and (latest.offset, latest.timestamp))


def state_of(records: list[Record]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for one in records:
        if one.key is None:
            continue
        state.pop(one.key, None)
        if one.value is not None:
            state[one.key] = one.value
    return state
