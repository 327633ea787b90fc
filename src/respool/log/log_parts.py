"""The state of one log and the operations that all its changes share; `partition_log.py` is the entry point.

One thread owns the parts. Readers in other threads take `segments`, `end` and `synced` at one moment each: every one is
replaced as a whole, in an order in which older values stay valid with newer ones.
"""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from respool.log.index.offset_index import RELATIVE_OFFSET_MAX
from respool.log.index.segment_indexes import IndexSettings
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.leader_epochs import EpochFile
from respool.log.log_tail import LogTail, TailMemory
from respool.log.pending_sync import PendingSync, SyncLedger
from respool.log.recovery.log_loader import LoadedLog
from respool.log.segment import Segment
from respool.log.segments import LogPoint
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.ports.disk import Disk
from respool.records.batch import LENGTH_BYTES, STAMP_BYTES, BatchHeader, RecordBatch, stamp


class RollRule:
    """When to roll the active segment: the topic's limits, minus the segment's jitter."""

    __slots__ = ("_age_ms_max", "_bytes_max")

    def __init__(self, config: TopicConfig, *, folder: str, base_offset: Offset) -> None:
        self._bytes_max = config.segment_bytes
        age_ms_max = config.segment_age_ms_max
        jitter_ms_max = min(config.segment_jitter_ms, age_ms_max)
        # Derived from the name instead of drawn at random: runs are repeatable, and rolls still spread out.
        jitter_ms = (
            crc32(f"{folder}/{base_offset}".encode()) % jitter_ms_max if jitter_ms_max else 0
        )
        self._age_ms_max = age_ms_max - jitter_ms

    def is_due_for(
        self,
        segment: Segment,
        *,
        size: int,
        last_offset: Offset,
        max_timestamp: int,
        now_ms: int,
    ) -> bool:
        """True if a batch of that size, last offset and timestamp must go into a new segment.

        Age is the span of the records' timestamps, as in Kafka. Measured by the clock, a backfill of old records would
        create a segment per batch.
        """
        if not segment.size:
            return False
        if (
            segment.size + size > self._bytes_max
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.is_index_full
        ):
            return True
        first = segment.first_timestamp
        age_ms = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        return age_ms > self._age_ms_max

    def is_due_at(self, segment: Segment, now_ms: int) -> bool:
        """True if an idle segment has become too old.

        Age counts from the first record's timestamp, at the earliest from the segment's creation. A segment not written
        to since the start is left alone: checking it would open it, and retention rolls it in time.
        """
        if not segment.size or not segment.is_writable:
            return False
        return now_ms - max(segment.first_timestamp, segment.created_ms) > self._age_ms_max


class ArchiveRule:
    """When to roll the active segment so that its records are archived."""

    __slots__ = ("_age_ms_max",)

    def __init__(self, config: TopicConfig) -> None:
        self._age_ms_max = config.respool_archive_max_age_ms

    def is_due_at(self, segment: Segment, now_ms: int) -> bool:
        """True if the segment's first record has waited for too long.

        A segment that was not written to since the start counts from then: its first record is not read for this.
        """
        if not segment.size or self._age_ms_max < 0:
            return False
        return now_ms - max(segment.first_timestamp, segment.created_ms) >= self._age_ms_max


class Appended(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    # True for a retry of an earlier batch; the offsets are those of that batch.
    is_duplicate: bool
    # LogAppendTime if the topic uses it, else -1.
    log_append_time_ms: int
    # A new segment began with this batch.
    has_rolled: bool = False


class LogParts:
    __slots__ = (
        "_create_folder",
        "archive_rule",
        "config",
        "disk",
        "end",
        "epochs",
        "folder",
        "index_settings",
        "ledger",
        "log_start",
        "producer_expiration_ms",
        "producers",
        "roll_rule",
        "segments",
        "snapshots",
        "synced",
        "tail",
        "truncations",
    )

    def __init__(
        self,
        *,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        loaded: LoadedLog,
        producer_expiration_ms: int,
        tails: TailMemory,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.segments = loaded.segments
        self.end = LogPoint(loaded.log_end, self.segments.active, self.segments.active.size)
        # Everything before it is durable.
        self.synced = self.end
        # The first existing offset. Invariant: at most the log end; only a truncation lowers it.
        self.log_start = loaded.log_start
        self.producers = loaded.producers
        self.producer_expiration_ms = producer_expiration_ms
        # Creates the folder of a log that has none yet.
        self._create_folder = loaded.create_folder
        self.epochs = EpochFile(disk, folder, loaded.epochs, is_on_disk=self.has_folder)
        self.snapshots = loaded.snapshots
        self.ledger = SyncLedger(disk, folder, self.snapshots, self.epochs)
        self.tail = LogTail(tails)
        # Incremented when a truncation begins and when it ends: odd while one is running.
        self.truncations = 0
        self.set_config(config)

    def set_config(self, config: TopicConfig) -> None:
        """Apply changed settings; the active segment keeps its indexes."""
        self.config = config
        self.index_settings = IndexSettings.of(config)
        self.archive_rule = ArchiveRule(config)
        self.update_roll_rule()

    def roll_rule_of(self, *, to_archive: bool) -> RollRule | ArchiveRule:
        return self.archive_rule if to_archive else self.roll_rule

    def update_roll_rule(self) -> None:
        """Update the rule after a change of the active segment or the settings."""
        self.roll_rule = RollRule(
            self.config, folder=self.folder, base_offset=self.segments.active.base_offset
        )

    def write(
        self,
        batch: RecordBatch,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        aborted: AbortedTransaction | None = None,
    ) -> tuple[Offset, Offset]:
        """Append a batch, and the transaction that it aborts; return its first and last offset.

        Raises:
            DiskFull, DiskFailed: the write failed; the log is unchanged.
        """
        if self.ledger.failure is not None:
            self.ledger.check()
        header = batch.header
        base_offset, segment, position = self.end
        assert header.last_offset_delta >= 0
        last_offset = Offset(base_offset + header.last_offset_delta)
        max_timestamp = header.max_timestamp
        size = header.length + LENGTH_BYTES
        if position and self.roll_rule.is_due_for(
            segment, size=size, last_offset=last_offset, max_timestamp=max_timestamp, now_ms=now_ms
        ):
            segment = self.roll(now_ms)
        if not segment.is_writable:
            self.make_writable(segment)
        if leader_epoch > self.epochs.latest:
            self.epochs.begin(leader_epoch, base_offset)
        head = stamp(header, base_offset=base_offset, leader_epoch=leader_epoch)
        rest = memoryview(batch.data)[STAMP_BYTES:]
        segment.append(
            (head, rest),
            size=size,
            last_offset=last_offset,
            max_timestamp=max_timestamp,
            now_ms=now_ms,
            aborted=aborted,
        )
        next_offset = Offset(last_offset + 1)
        self.end = LogPoint(next_offset, segment, segment.size)
        if type(batch.data) is bytes:
            self.tail.add(head, rest, base_offset=base_offset, next_offset=next_offset, size=size)
        else:
            # The producer's buffer may be reused.
            self.tail.clear()
        return base_offset, last_offset

    def write_run(
        self,
        data: bytes | memoryview,
        headers: Sequence[BatchHeader],
        now_ms: int,
        aborted: AbortedTransaction | None = None,
    ) -> None:
        """Append batches unchanged to the active segment, which is writable; only a single batch may abort a
        transaction.

        Raises:
            DiskFull, DiskFailed: nothing was written; the log is unchanged.
        """
        segment = self.segments.active
        last = headers[-1]
        assert headers[0].base_offset >= self.end.offset, "appends never overlap"
        assert aborted is None or len(headers) == 1
        self.tail.clear()
        if aborted is None:
            segment.append_run(data, headers, now_ms=now_ms)
        else:
            segment.append(
                (data,),
                size=last.size,
                last_offset=last.last_offset,
                max_timestamp=last.latest_timestamp,
                now_ms=now_ms,
                aborted=aborted,
            )
        self.end = LogPoint(last.next_offset, segment, segment.size)

    @property
    def local_start(self) -> Offset:
        """The first offset on this disk. In an archived topic, records between the log start and it are archived."""
        return max(self.log_start, self.segments.first.base_offset)

    @property
    def has_folder(self) -> bool:
        """False for a new log until its first append."""
        return self._create_folder is None

    def ensure_folder(self) -> None:
        """Create the folder of a new log. It is durable with the first sync (folder_durability.py)."""
        if self._create_folder is not None:
            self._create_folder()
            self.segments.active.create_file()
            self._create_folder = None
            self.ledger.on_names_changed()

    @property
    def is_folder_durable(self) -> bool:
        """False for a new log until its first sync: a power cut may remove its folder."""
        return self.epochs.is_on_disk

    def make_writable(self, segment: Segment) -> None:
        """Prepare the active segment for appends.

        Raises:
            DiskFull, HandlesExhausted: there is no room for its indexes, or for the folder of a new log.
        """
        self.ensure_folder()
        if not segment.is_writable:
            segment.make_writable(log_end=self.end.offset)

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last record. An epoch that started here without writing does not count."""
        return self.epochs.epoch_at(Offset(self.end.offset - 1))

    def roll(self, now_ms: int) -> Segment:
        """Roll to a new segment. The next sync completes the old one and makes it durable."""
        old, base_offset = self.segments.active, self.end.offset
        # In this order: a created segment must be used, or its empty file would look like a gap in the log. If creating
        # one fails, appending to the finished old one does no harm.
        old.finish()
        new = Segment.create(
            self.disk, self.folder, base_offset, self.index_settings, now_ms=now_ms
        )
        # The snapshot omits expired producers.
        self.producers.expire(now_ms)
        self.ledger.on_finished(old, end=base_offset, snapshot=self.producers.encode_snapshot())
        self.ledger.on_names_changed()
        self.segments = self.segments.with_new(new)
        self.end = LogPoint(base_offset, new, 0)
        self.update_roll_rule()
        return new

    def finish_sync(self, done: PendingSync) -> None:
        """The sync has run: everything before its end is durable."""
        # A sync that began before a truncation says nothing about later appends.
        if not done.belongs_to(self.ledger):
            return
        assert done.end.offset <= self.end.offset, f"synced {done.end.offset} of {self.end.offset}"
        self.ledger.finish(done)
        if done.end.offset >= self.synced.offset:
            self.synced = done.end

    def sync_now(self, pending: PendingSync) -> None:
        """Run a sync in this thread, for the rare cases that cannot wait."""
        pending.run()
        self.finish_sync(pending)

    def raise_log_start(self, offset: Offset) -> None:
        """Delete the records before `offset`."""
        assert offset <= self.end.offset, f"log start {offset} beyond {self.end.offset}"
        if offset <= self.log_start:
            return
        self.log_start = offset
        # The epoch file may keep older entries: opening truncates them again.
        self.epochs.truncate_start(offset)
        self.producers.forget_before(offset)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        first_unstable = self.producers.transactions.first_unstable
        if first_unstable is None or first_unstable >= high_watermark:
            return high_watermark
        # Deleted transactions are no longer open.
        return max(first_unstable, self.log_start)
