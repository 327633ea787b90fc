"""A log with transactions on a simulated disk beside the plainest model of one: all that was ever appended, in a list.

`check` reads the log as a client with isolation.level=read_committed does, and compares: nothing that was aborted, all
that was committed, up to an offset that never goes back.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Self

from log.log_restarts import LogRestarts
from log.tail_check import TAIL_BYTES, check_tail
from respool.broker.fetch.partition_read import aborted_among
from respool.log.compaction import batch_chunks
from respool.log.partition_log import (
    Compaction,
    CompactionTools,
    PartitionLog,
    ReadSpec,
    RemovedSegment,
    TailMemory,
)
from respool.model.errors import StorageError
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.records.batch import Codec, RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, read_marker
from respool.records.plain_scan import KEY_BYTES, PlainScanner
from respool.records.record import Record, read_records
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_disk import SimDisk

FOLDER = "rides-0"
FUZZ = os.environ.get("RESPOOL_FUZZ") == "long"
EPOCH = LeaderEpoch(0)
START = Offset(0)
SMALL = {
    "segment.bytes": "1024",
    "index.interval.bytes": "100",
    "segment.index.bytes": "120",
    "segment.ms": "100000000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "1000",
    "retention.ms": "-1",
}
KEPT = TopicConfig.parse({"cleanup.policy": "delete", **SMALL})
COMPACTED = TopicConfig.parse({"cleanup.policy": "compact,delete", **SMALL})


class Appending(NamedTuple):
    """One batch of the model: data, of a transaction or not, or the end of one."""

    base_offset: int
    next_offset: int
    # -1 for none.
    producer_id: int
    is_transactional: bool
    # What a reader is to get of it.
    records: tuple[tuple[int, bytes, bytes], ...] = ()
    # The marker's outcome; None for data.
    is_commit: bool | None = None


class Transaction(NamedTuple):
    producer_id: int
    data: tuple[Appending, ...]
    # None while it is open.
    end: Appending | None

    @property
    def first_offset(self) -> int:
        return self.data[0].base_offset


def transactions_of(log: list[Appending]) -> Iterator[Transaction]:
    open_here: dict[int, list[Appending]] = {}
    for one in log:
        if one.is_commit is not None:
            data = open_here.pop(one.producer_id, None)
            if data is not None:
                yield Transaction(one.producer_id, tuple(data), one)
        elif one.is_transactional:
            open_here.setdefault(one.producer_id, []).append(one)
    for producer_id, data in open_here.items():
        yield Transaction(producer_id, tuple(data), None)


@dataclass
class TransactionWorld(LogRestarts):
    disk: SimDisk
    config: TopicConfig = KEPT
    now_ms: int = 1_000_000
    history: list[Appending] = field(default_factory=list)
    # Below this compactions were at work.
    touched_end: Offset = START
    high_watermark: Offset = START
    # The highest last stable offset anyone was told.
    told_stable: Offset = START
    recovery_point: Offset = START
    log_start_written: Offset = START
    cleaned_end_written: Offset | None = None
    safe_end: Offset = START
    compaction: Compaction | None = None
    removed: list[RemovedSegment] = field(default_factory=list)
    values: int = 0
    log: PartitionLog = field(init=False)

    @classmethod
    def new(cls, seed: int = 0, config: TopicConfig = KEPT) -> Self:
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
            producer_expiration_ms=10**12,
            cleaned_end=self.cleaned_end_written,
            tails=TailMemory(TAIL_BYTES),
        )

    @property
    def log_end(self) -> Offset:
        return Offset(self.history[-1].next_offset if self.history else 0)

    @property
    def last_stable_offset(self) -> Offset:
        return self.log.last_stable_offset(self.high_watermark)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(
        self,
        producer: int,
        *keys: str,
        size: int = 1,
        transactional: bool = True,
        codec: Codec = Codec.NONE,
    ) -> None:
        """A batch of this producer, or of none (-1); in a transaction it is verified first, where it must be."""
        known = {one.producer_id: one for one in self.log.active_producers()}.get(producer)
        records = []
        for key in keys:
            self.values += 1
            value = f"{self.values} ".encode() + b"v" * size
            records.append(NewRecord(key=key.encode(), value=value, timestamp_ms=self.now_ms))
        data = build_batch(
            records,
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else known.epoch if known else 0,
            base_sequence=-1 if producer < 0 else known.next_sequence if known else 0,
            is_transactional=producer >= 0 and transactional,
            codec=codec,
        )
        batch = RecordBatch(read_header(data), data)
        header = batch.header
        begin = self.log_end
        one = Appending(
            begin,
            begin + len(keys),
            producer,
            header.is_transactional,
            tuple((begin + i, two.key or b"", two.value or b"") for i, two in enumerate(records)),
        )
        guard = self.log.begin_verification(header) if header.is_transactional else None
        segments = self.log.segment_count
        with self.appending(one):
            appended = self.log.append(batch, leader_epoch=EPOCH, now_ms=self.now_ms, guard=guard)
        has_rolled = self.log.segment_count != segments
        assert appended == (one.base_offset, one.next_offset - 1, False, -1, has_rolled)

    def end(self, producer: int, *, is_commit: bool, bump: bool = False) -> None:
        known = {one.producer_id: one for one in self.log.active_producers()}.get(producer)
        marker = EndTransactionMarker(
            producer_id=producer,
            producer_epoch=known.epoch + bump if known else 0,
            coordinator_epoch=known.coordinator_epoch + 1 if known else 0,
            is_commit=is_commit,
        )
        begin = self.log_end
        with self.appending(Appending(begin, begin + 1, producer, True, (), is_commit)):
            self.log.append_marker(marker, leader_epoch=EPOCH, now_ms=self.now_ms)

    def appending(self, one: Appending) -> "_Appending":
        return _Appending(self, one)

    def open_producers(self) -> list[int]:
        return [one.producer_id for one in transactions_of(self.history) if one.end is None]

    # -- on the disk -------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        if (pending := self.log.begin_sync()) is not None:
            pending.run()
            self.log.finish_sync(pending)
        self.commit()

    def commit(self) -> None:
        """What is synced is committed; readers may be told."""
        self.safe_end = self.log.synced_end
        self.high_watermark = max(self.high_watermark, self.log.synced_end)
        self.log.on_high_watermark(self.high_watermark)
        self.tell()

    def tell(self) -> None:
        stable = self.last_stable_offset
        assert self.told_stable <= stable <= self.high_watermark, (self.told_stable, stable)
        self.told_stable = stable

    def roll(self) -> None:
        if self.log._parts.end.position:
            self.log._parts.roll(self.now_ms)

    def write_checkpoint(self) -> None:
        self.recovery_point = self.log.synced_end
        self.log_start_written = self.log.log_start
        self.cleaned_end_written = self.log.cleaned_end

    def delete_records(self, offset: Offset) -> None:
        self.log.raise_log_start(offset)
        # As the broker does before it answers.
        self.write_checkpoint()
        self.tell()

    def truncate_to(self, offset: Offset) -> None:
        """As a follower would, never below what is committed."""
        assert offset >= self.high_watermark
        left = [one for one in self.history if one.next_offset <= offset]
        # As it must, before it cuts.
        self.recovery_point = min(self.recovery_point, Offset(left[-1].next_offset if left else 0))
        self.safe_end = min(self.safe_end, self.recovery_point)
        self.log.truncate_to(offset)
        self.history = left
        self.safe_end = self.log.synced_end
        self.tell()

    def apply_retention(self) -> None:
        before, stable = self.log.log_start, self.last_stable_offset
        try:
            self.removed += self.log.apply_retention(
                now_ms=self.now_ms, high_watermark=self.high_watermark
            )
        finally:
            assert before <= self.log.log_start <= max(stable, before)
            self.safe_end = self.log.synced_end
        self.commit()

    # -- compaction --------------------------------------------------------------------------------------------------

    def begin_compaction(self, *, keys_max: int = 1000, slice_bytes: int = 10**9) -> bool:
        tools = CompactionTools(
            scanner=PlainScanner(),
            memory_bytes_max=keys_max * KEY_BYTES,
            secret=bytes(16),
            slice_bytes=slice_bytes,
        )
        begun = self.log.begin_compaction(
            now_ms=self.now_ms, bound=self.last_stable_offset, tools=tools
        )
        if begun is None:
            return False
        self.compaction = begun
        self.touched_end = max(self.touched_end, begun.end)
        return True

    def compact_a_slice(self) -> None:
        compaction = self.compaction
        assert compaction is not None
        if compaction.cleaned is None:
            compaction.run()
        self.removed += self.log.finish_compaction(compaction)
        if compaction.is_complete:
            self.compaction = None

    def compact(self, *, keys_max: int = 1000) -> bool:
        if not self.begin_compaction(keys_max=keys_max):
            return False
        while self.compaction is not None:
            self.compact_a_slice()
        return True

    def delete_removed(self) -> None:
        while self.removed:
            self.removed.pop(0).delete()

    # -- ends and returns --------------------------------------------------------------------------------------------

    def compare_after_restart(self, *, at_least: Offset) -> None:
        self.compaction = None
        self.removed.clear()
        log = self.log
        assert log.log_end >= min(at_least, self.log_end), (log.log_end, at_least)
        self.history = [one for one in self.history if one.next_offset <= log.log_end]
        assert self.log_end == log.log_end
        # The broker begins so: what is there is committed.
        self.high_watermark = log.log_end
        self.commit()
        self.check()

    # -- looking -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        log = self.log
        assert log.log_end == self.log_end
        check_tail(log)
        self.check_stable()
        self.check_index()
        self.check_reader(log.log_start, bytes_max=700)

    def check_stable(self) -> None:
        """The last stable offset is where the first undecided transaction begins."""
        undecided = [
            one
            for one in transactions_of(self.history)
            if one.end is None or one.end.base_offset >= self.high_watermark
        ]
        start = self.log.log_start
        lowest = min([self.high_watermark, *(one.first_offset for one in undecided)])
        # What was deleted of one may be forgotten.
        left = [
            one.base_offset
            for transaction in undecided
            for one in transaction.data
            if one.next_offset > start
        ]
        highest = min([self.high_watermark, *left])
        assert max(lowest, start) <= self.last_stable_offset <= max(highest, start)

    def check_index(self) -> None:
        """Every aborted transaction is in the index, and nothing else; some of compacted segments may be gone."""
        first = self.log._parts.segments.first.base_offset
        found = [one for segment in self.log._parts.segments.all for one in segment.aborted.all()]
        expected = {
            (one.producer_id, one.first_offset, one.end.base_offset)
            for one in transactions_of(self.history)
            if one.end is not None and not one.end.is_commit and one.end.base_offset >= first
        }
        untouched = {one for one in expected if one[2] >= self.touched_end and one[1] >= first}
        told = {(one.producer_id, one.first_offset, one.last_offset) for one in found}
        assert len(told) == len(found)
        if not self.touched_end:
            assert untouched <= told
        ends = {(one[0], one[2]) for one in expected}
        assert {(one.producer_id, one.last_offset) for one in found} <= ends
        assert [one.last_offset for one in found] == sorted(one.last_offset for one in found)

    def check_reader(self, offset: Offset, *, bytes_max: int) -> None:
        """A reader that begins there gets what was committed."""
        end = self.last_stable_offset
        if offset > end:
            return
        seen = [(one.offset, one.key, one.value) for one in self.read_committed(offset, bytes_max)]
        expected = self.committed(offset, end)
        assert set(seen) <= set(expected), "an aborted record, or one that never was"
        assert seen == sorted(seen)
        missing = set(expected) - set(seen)
        newest = {key: at for at, key, _ in expected}
        for at, key, _ in missing:
            assert at < self.touched_end, f"the record at {at} is missing"
            assert newest[key] > at, f"the newest record of {key!r}, at {at}, is missing"

    def committed(self, begin: Offset, end: Offset) -> list[tuple[int, bytes, bytes]]:
        aborted = {
            one.base_offset
            for transaction in transactions_of(self.history)
            if transaction.end is not None and not transaction.end.is_commit
            for one in transaction.data
        }
        return [
            record
            for one in self.history
            if one.base_offset not in aborted
            for record in one.records
            if begin <= record[0] < end
        ]

    def read_committed(self, offset: Offset, bytes_max: int) -> Iterator[Record]:
        """Fetch after fetch, each filtered by what its answer says was aborted: as clients do."""
        log = self.log
        while offset < (end := self.last_stable_offset):
            data = log.read(ReadSpec(offset, max_offset=end, bytes_max=bytes_max))
            if not data:
                # Compaction left nothing behind here.
                return
            to_come = aborted_among(log, offset, data, cached_only=False)
            aborting: set[int] = set()
            position, asked = 0, offset
            while len(data) - position >= 61:
                header = read_header(data, position)
                if position + header.size > len(data):
                    break
                batch = RecordBatch(header, data[position : position + header.size])
                position += header.size
                while to_come and to_come[0][1] <= header.last_offset:
                    aborting.add(to_come.pop(0)[0])
                offset = header.next_offset
                if header.is_control:
                    marker = read_marker(batch)
                    if marker is not None and not marker.is_commit:
                        aborting.discard(header.producer_id)
                    continue
                if header.is_transactional and header.producer_id in aborting:
                    continue
                for record in read_records(batch, limit=10**7):
                    if record.offset >= asked:
                        yield record
            assert offset > asked, "a reader does not get on"


class _Appending:
    """Enters what is being appended in the model, unless it fails. A power cut may leave it whole."""

    def __init__(self, world: TransactionWorld, one: Appending) -> None:
        self._world = world
        self._one = one

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, ProcessGone):
            self._world.history.append(self._one)
        else:
            assert issubclass(kind, StorageError)
            assert self._world.log.log_end == self._world.log_end
