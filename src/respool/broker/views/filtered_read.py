"""Reads one partition for a reader that is shown only the records for which a condition holds.

```
 offset      100         200         300         400       end
 log         | some match | none      | all match | none   |
 the reply   | rebuilt    |           | as stored | marker |
```
The tag index tells which batches cannot match; these are not read. Batches without a shown record are left out. A
stretch of them at the reply's end becomes a marker, which moves the reader past it: a group's lag reaches 0 although
nothing matches. The marker's offset is the last one that was scanned, below the end that this reader may see: a
read_committed reader must not pass an open transaction.

For a read_committed reader, aborted batches and real markers are left out here, and the reply lists no aborted
transactions. Half of that would hide committed records, or show aborted ones.
"""

from collections.abc import Sequence
from typing import NamedTuple

from respool.broker.views.batch_filter import BatchFilter, ChunkBatch, ViewCondition
from respool.broker.views.chunk_verdicts import (
    AbortedBatches,
    ChunkVerdicts,
    aborted_batches,
    batches_in,
)
from respool.broker.views.filtered_records import FilteredRecords
from respool.broker.views.scan_pass import ScanPass
from respool.broker.views.scanned_log import ScannedLog
from respool.broker.views.verdict_cache import CacheScope, Verdict, VerdictCache
from respool.log.partition_log import ReadSpec
from respool.log.tagged_read import TagCursor, TaggedBatches
from respool.model.errors import CorruptMessage, UnsupportedCompressionType
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from respool.ports.record_scan import RecordMatcher
from respool.records.batch import BatchHeader, Codec, read_header
from respool.records.rebuilt_batch import build_skip_marker

CHUNK_BYTES = 1024 * 1024


class ScannedTo(NamedTuple):
    """Nothing from a reader's fetch offset up to here is shown."""

    offset: Offset
    # Of the last batch before it.
    leader_epoch: LeaderEpoch
    timestamp_ms: int


class FilteredSource(NamedTuple):
    """What is read: a partition's log, and which of its records are shown."""

    log: ScannedLog
    scope: CacheScope
    condition: ViewCondition
    read_committed: bool
    # Whether the reader understands zstd.
    takes_zstd: bool


class Chunk(NamedTuple):
    """Whole batches of the log, in a buffer that may end with a part of another one."""

    data: bytes | memoryview
    batches: Sequence[ChunkBatch]
    # Nothing before it is shown that is not in these batches; None: it is where they end.
    end: Offset | None


class FilteredRead:
    """One read. It ends with the reader's end, the reply's size, or when the pass may scan no more."""

    def __init__(
        self, source: FilteredSource, spec: ReadSpec, scan: ScanPass, cache: VerdictCache
    ) -> None:
        """`spec` is as for a read of the log itself."""
        self._source = source
        self._spec = spec
        self._scan = scan
        self._cache = cache
        self._records = FilteredRecords()
        # The end of what is shown.
        self._shown_end = spec.offset
        # The reply has no room for the next shown batch.
        self._is_full = False
        # There is no whole batch before the reader's end.
        self._is_at_end = False
        # A scan on the event loop is too short for an index to help.
        query = None if scan.is_quick else source.condition.tag_query
        self._cursor = None if query is None else TagCursor(query)
        self.scanned = ScannedTo(spec.offset, LeaderEpoch(-1), NO_TIMESTAMP)

    def run(self, *, begin: ScannedTo | None = None) -> FilteredRecords:
        """Return what is shown from the spec's offset on; nothing before `begin` is.

        Raises:
            The exceptions of `PartitionLog.read`; NotCached also if too much must be scanned for the event loop.
            UnsupportedCompressionType: the first shown batch has a codec that the reader does not know.
            CorruptMessage: the first batch is damaged.
        """
        if begin is not None and begin.offset > self.scanned.offset:
            self.scanned = begin
        if self._spec.offset >= self._spec.max_offset:
            # At the end, or beyond the log.
            self._read_chunk()
        matcher: RecordMatcher | None = None
        condition = self._source.condition
        try:
            while chunk := self._next_chunk():
                if matcher is None:
                    # After the first read: at the log's end none is needed.
                    matcher = condition.acquire(quickly=self._scan.is_quick)
                self._scan_chunk(chunk, BatchFilter(matcher))
                if self._is_full or self._scan.is_over:
                    break
        finally:
            if matcher is not None:
                condition.release(matcher)
        return self._end_with_marker()

    def _next_chunk(self) -> "Chunk | None":
        """The next batches to scan; None at the reader's end."""
        while self.scanned.offset < self._spec.max_offset:
            tagged = self._read_tagged()
            if tagged is None:
                data = self._read_chunk()
                batches = batches_in(data, self.scanned.offset)
                if batches:
                    return Chunk(data, batches, None)
                break
            batches = batches_in(tagged.data, self.scanned.offset)
            if batches:
                return Chunk(tagged.data, batches, tagged.end)
            self._move_to(tagged.end)
        self._is_at_end = True
        return None

    def _read_tagged(self) -> TaggedBatches | None:
        """Pass over what cannot match, by the tag index; None where there is none."""
        if self._cursor is None:
            return None
        tagged = self._source.log.read_tagged(
            self._cursor, self._spec._replace(offset=self.scanned.offset, bytes_max=CHUNK_BYTES)
        )
        if tagged is None or tagged.end <= self.scanned.offset:
            return None
        self._scan.skipped_bytes += tagged.passed_bytes
        if tagged.last_passed is not None:
            self._move_to(tagged.passed_to, tagged.last_passed)
        return tagged

    def _move_to(self, offset: Offset, last: BatchHeader | None = None) -> None:
        """Nothing before `offset` is left to be shown; `last` is the last batch before it, if it is another one."""
        if last is not None:
            self.scanned = ScannedTo(offset, last.leader_epoch, last.latest_timestamp)
        elif offset > self.scanned.offset:
            self.scanned = self.scanned._replace(offset=offset)

    def _read_chunk(self) -> bytes | memoryview:
        scan = self._scan
        # One byte more than the loop may scan tells that there is more.
        size = scan.bytes_left + 1 if scan.is_quick else min(CHUNK_BYTES, scan.bytes_left)
        return self._source.log.read(
            self._spec._replace(
                offset=self.scanned.offset,
                bytes_max=min(CHUNK_BYTES, size),
                at_least_one=True,
                with_empty=True,
            )
        )

    def _scan_chunk(self, chunk: "Chunk", batch_filter: BatchFilter) -> None:
        self._scan.take(len(chunk.data))
        batches = chunk.batches
        aborted = self._aborted(batches)
        verdicts = ChunkVerdicts(
            chunk.data,
            [one for one in batches if _has_records(one.header) and not aborted.has(one.header)],
            batch_filter=batch_filter,
            cache=self._cache,
            scope=self._source.scope,
            scan=self._scan,
        )
        for one in batches:
            verdict = verdicts.of(one)
            if verdict is not None and verdict.is_damaged:
                self._stop_at_damage(one.header)
                return
            if verdict is not None and verdict.last_offset >= self._spec.offset:
                self._show(chunk.data, one, verdict)
                if self._is_full:
                    return
            self._move_to(one.header.next_offset, one.header)
            if self._scan.is_over:
                return
        if chunk.end is not None:
            # Compaction may have left a gap before the next batch.
            self._move_to(chunk.end)

    def _show(self, chunk: bytes | memoryview, batch: ChunkBatch, verdict: Verdict) -> None:
        data = verdict.rebuilt or _part_of(chunk, batch)
        spec, records = self._spec, self._records
        is_first = spec.at_least_one and not records.size
        if not is_first and records.size + len(data) > spec.bytes_max:
            self._is_full = True
            return
        if not self._source.takes_zstd and read_header(data).codec_bits == Codec.ZSTD:
            if not records.size:
                raise UnsupportedCompressionType("the reader's version of Fetch has no zstd")
            self._is_full = True
            return
        records.add(data, messages=verdict.shown)
        self._shown_end = Offset(verdict.last_offset + 1)

    def _stop_at_damage(self, header: BatchHeader) -> None:
        """End the reply before this batch. Otherwise the view would hide the damage, and with it committed records."""
        if self.scanned.offset <= self._spec.offset:
            raise CorruptMessage(
                f"the checksum of the batch at offset {header.base_offset} is wrong"
            )
        self._is_full = True

    def _aborted(self, batches: Sequence[ChunkBatch]) -> AbortedBatches:
        if not self._source.read_committed:
            return AbortedBatches(())
        return aborted_batches(self._source.log, batches, cached_only=self._spec.cached_only)

    def _end_with_marker(self) -> FilteredRecords:
        records, scanned = self._records, self.scanned
        records.is_idle = not records.size and (
            self._is_at_end or scanned.offset >= self._spec.max_offset
        )
        records.join_if_small()
        if scanned.offset > self._shown_end:
            # Never beyond a batch that the reply has no room for, or a damaged one: scanning has stopped before it.
            marker = build_skip_marker(
                last_offset=Offset(scanned.offset - 1),
                leader_epoch=scanned.leader_epoch,
                timestamp_ms=scanned.timestamp_ms,
            )
            records.add(marker, messages=0)
        self._scan.sent_bytes += records.size
        return records


def _has_records(header: BatchHeader) -> bool:
    return header.record_count > 0 and not header.is_control


def _part_of(chunk: bytes | memoryview, batch: ChunkBatch) -> bytes | memoryview:
    part = memoryview(chunk)[batch.begin : batch.end]
    # A reply accounts for the memory of what it sends, and a part keeps all of its chunk alive.
    return part if 2 * len(part) >= len(chunk) else bytes(part)
