"""One compaction of a log: retains the newest record of each key, from the first segment up to a bound.

    compaction = log.begin_compaction(…)             # in the owner's thread: plan
    while not compaction.is_complete:
        compaction.run()                             # in any thread: one slice of the work
        removed += log.finish_compaction(compaction) # in the owner's thread: swap in a finished segment

First the keys of the dirty part are read, each with its newest offset, as far as memory suffices: the compaction ends
where it is full, and the next one continues. Then the segments are rewritten, oldest first, small ones merged, without
the superseded records. Each new segment is swapped in before the next one is started: a crash leaves a log whose first
part is compacted further than the rest, which is valid, and only one segment's worth of space is needed.

A newer record is never removed before an older one of its key: so whatever a crash reverts, no old value reappears.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from respool.log.compaction.batch_chunks import BatchChunk, read_chunks
from respool.log.compaction.batch_cleaner import (
    BatchCleaner,
    CleanedTransactions,
    CleaningRules,
    open_records,
    section_of,
)
from respool.log.compaction.cleaned_segment import CleanedSegment
from respool.log.compaction.compaction_span import CompactionSpan, GroupLimits, SegmentGroup
from respool.log.index.segment_indexes import IndexSettings
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.segment import Segment
from respool.model.config_rules import INT_MAX
from respool.model.ids import Offset
from respool.model.topic_config import MIB, TopicConfig
from respool.ports.disk import Disk
from respool.ports.record_scan import KeyOffsets, RecordScanner, Section
from respool.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    RecordBatch,
)

# Bytes read per slice: a fraction of a second of work, so that it can be stopped and others can run.
SLICE_BYTES = 16 * MIB
# How much the smallest records may grow by a new timestamp.
GROWTH_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTools:
    scanner: RecordScanner
    # Memory for the keys of the dirty part.
    memory_bytes_max: int
    # 16 random bytes for this compaction, so that nobody can construct colliding keys.
    secret: bytes
    slice_bytes: int = SLICE_BYTES


@dataclass(slots=True)
class CompactionCounts:
    """What a compaction did, for the operator."""

    bytes_read: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0


class Compaction:
    def __init__(
        self,
        *,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        span: CompactionSpan,
        rules: CleaningRules,
        find_aborted: Callable[[Offset, Offset], list[AbortedTransaction]],
        tools: CompactionTools,
    ) -> None:
        """Use `PartitionLog.begin_compaction`."""
        self._disk = disk
        self._folder = folder
        self._config = config
        self._span = span
        self._rules = rules
        self._find_aborted = find_aborted
        # Aborted transactions that overlap the span.
        self._aborted: list[AbortedTransaction] = []
        self._tools = tools
        self._limits = GroupLimits.of(config)
        # End offset of each segment, by base offset.
        bases = [segment.base_offset for segment in span.segments]
        self._ends = dict(zip(bases, [*bases[1:], span.end], strict=True))
        # The end of this compaction: lower than planned if memory did not suffice.
        self.end = span.end
        # A group of segments and its replacement, until the swap.
        self.cleaned: tuple[SegmentGroup, CleanedSegment] | None = None
        self.is_complete = False
        # Set by the owner's thread when the result is no longer needed.
        self.is_abandoned = False
        # True if source segments were removed meanwhile, so that the replacement is obsolete.
        self.is_partial = False
        self.counts = CompactionCounts()
        self._unfinished: CleanedSegment | None = None
        self._work = self._do()

    def run(self) -> None:
        """Do one slice of the work, at most until a segment is ready to swap in. From any thread, one at a time.

        Raises:
            SegmentCorrupt: a batch is damaged. Its segment was not replaced.
            DiskFull, DiskFailed: the new segment cannot be written. The log is unchanged.
        """
        assert self.cleaned is None, "the last segment was not swapped in"
        stop_at = self.counts.bytes_read + self._tools.slice_bytes
        for _ in self._work:
            if self.is_abandoned:
                self._work.close()
                break
            if self.cleaned is not None or self.counts.bytes_read >= stop_at:
                if self._unfinished is not None:
                    self._unfinished.sync()
                return
        self.is_complete = True

    def discard(self) -> None:
        """Delete written files that were not swapped in. `run` is not running."""
        self._work.close()
        self.is_complete = True
        if self._unfinished is not None:
            self._unfinished.delete()
        if self.cleaned is not None:
            self.cleaned[1].delete()
            self.cleaned = None

    def on_swapped(self) -> None:
        """The ready segment was swapped in."""
        assert self.cleaned is not None
        self._count(self.cleaned[0], self.cleaned[1].size)
        self.cleaned = None

    def on_obsolete(self) -> None:
        """The ready segment is obsolete: some of its source segments are gone."""
        assert self.cleaned is not None
        self.is_partial = True
        self.cleaned[1].delete()
        self.cleaned = None

    # -- the work: each step is a chunk of some batches --------------------------------------------------------------

    def _do(self) -> Generator[None, None, None]:
        first = self._span.segments[0].base_offset
        self._aborted = self._find_aborted(first, self._span.end)
        keys = self._tools.scanner.key_offsets(
            bytes_max=self._tools.memory_bytes_max,
            keys_max=self._span.end - self._span.begin,
            secret=self._tools.secret,
        )
        yield from self._read_keys(keys)
        transactions = CleanedTransactions(self._aborted, begin=first)
        cleaner = BatchCleaner(
            keys=keys, rules=replace(self._rules, end=self.end), transactions=transactions
        )
        # Only whole segments are replaced, also if the compaction ends within one.
        segments = [one for one in self._span.segments if one.base_offset < self.end]
        while segments:
            taken = yield from self._clean(segments, cleaner, transactions)
            del segments[:taken]

    def _read_keys(self, keys: KeyOffsets) -> Iterator[None]:
        transactions = CleanedTransactions(self._aborted, begin=self._span.begin)
        for chunk in self._dirty_chunks():
            full_at = self._add_keys(keys, chunk, transactions)
            if full_at is not None:
                self.end = Offset(full_at)
                return
            yield

    def _dirty_chunks(self) -> Iterator[BatchChunk]:
        """Yield the dirty part's batches; its first segment may start before it."""
        for segment in self._span.segments:
            if self._ends[segment.base_offset] <= self._span.begin:
                continue
            for chunk in read_chunks(segment):
                self.counts.bytes_read += len(chunk.data)
                yield chunk

    def _add_keys(
        self, keys: KeyOffsets, chunk: BatchChunk, transactions: CleanedTransactions
    ) -> int | None:
        """Add a chunk's keys in offset order; return the first offset that did not fit."""
        begin = self._span.begin
        sections: list[Section] = []
        for batch in chunk.batches:
            header = batch.header
            if not _has_keys(header, transactions) or header.last_offset < begin:
                continue
            if not header.codec_bits:
                sections.append(section_of(header, batch.position + HEADER_BYTES, batch.end))
                continue
            if sections:
                if (full_at := keys.add(chunk.data, sections, begin=begin)) is not None:
                    return full_at
                sections = []
            records = open_records(RecordBatch(header, chunk.bytes_of(batch)))
            if records is not None:
                section = section_of(header, 0, len(records))
                if (full_at := keys.add(records, [section], begin=begin)) is not None:
                    return full_at
        return keys.add(chunk.data, sections, begin=begin) if sections else None

    def _clean(
        self,
        segments: Sequence[Segment],
        cleaner: BatchCleaner,
        transactions: CleanedTransactions,
    ) -> Generator[None, None, int]:
        """Write one segment from the first of these, as many as fit; return how many."""
        cleaned = CleanedSegment(
            self._disk, self._folder, segments[0].base_offset, IndexSettings.of(self._config)
        )
        self._unfinished = cleaned
        changed_before, taken, is_full = cleaner.changed, 0, False
        while not is_full:
            segment, left = segments[taken], segments[taken].size
            following = segments[taken + 1] if taken + 1 < len(segments) else None
            for chunk in read_chunks(segment):
                cleaner.may_grow = cleaned.size + left + GROWTH_MAX * len(chunk.data) <= INT_MAX
                if chunk.is_last:
                    # Before the last batch, whose header must then be retained.
                    is_full = following is None or not self._has_room(cleaned, chunk, following)
                cleaned.append(cleaner.clean(chunk, is_last=chunk.is_last and is_full))
                self.counts.bytes_read += len(chunk.data)
                left -= len(chunk.data)
                yield
            taken += 1
        group = SegmentGroup(segments=tuple(segments[:taken]))
        aborted = self._retained_aborted(group, transactions)
        if taken == 1 and cleaner.changed == changed_before:
            # The new segment would be identical to the old one.
            cleaned.delete()
            self._count(group, cleaned.size)
        else:
            # Even an empty one, so that an old index is not mistaken for the new segment's.
            has_index = aborted or self._disk.exists(segments[0].aborted.path)
            cleaned.finish(aborted if has_index else None)
            self.cleaned = (group, cleaned)
        self._unfinished = None
        yield
        return taken

    def _retained_aborted(
        self, group: SegmentGroup, transactions: CleanedTransactions
    ) -> list[AbortedTransaction]:
        """The transactions for the new segment's index, by marker offset."""
        needed = transactions.take_aborted_with_data()
        # If the compaction ends within a segment, the rest was not read.
        end = self._ends[group.segments[-1].base_offset]
        behind = [one for one in self._aborted if self.end <= one.last_offset < end]
        return needed + sorted(behind, key=lambda one: one.last_offset)

    def _has_room(self, cleaned: CleanedSegment, chunk: BatchChunk, following: Segment) -> bool:
        return self._limits.have_room_for(
            following,
            end=self._ends[following.base_offset],
            base_offset=cleaned.base_offset,
            size=cleaned.size + len(chunk.data),
            indexes=cleaned.indexes,
        )

    def _count(self, group: SegmentGroup, size: int) -> None:
        self.counts.bytes_before += group.size
        self.counts.bytes_after += size
        self.counts.segments_before += len(group.segments)
        self.counts.segments_after += 1


def _has_keys(header: BatchHeader, transactions: CleanedTransactions) -> bool:
    """True if consumers can ever see the batch's records."""
    if header.attributes & CONTROL_BIT:
        # Commit or abort does not matter: nothing is tracked here for committing producers.
        transactions.is_marker_needed(header, is_commit=False)
        return False
    if header.attributes & TRANSACTIONAL_BIT and transactions.is_aborted(header):
        return False
    return header.record_count > 0
