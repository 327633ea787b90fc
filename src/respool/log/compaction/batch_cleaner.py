"""Decides what compaction retains of each batch: all of it, some records, only its header, or nothing.

A batch that loses records keeps base and last offset, sequence and codec; length, record count, largest timestamp and
checksum are updated. A header without records is retained if needed:

- it is among the last batches of a known producer, who may retry it;
- it is the last of its new segment, so that every segment ends where the next one starts, and none is empty.

A tombstone (a key without a value) outlives the records it deletes, for consumers that have read those. When a
compaction first finds one, its batch gets a delete horizon (KIP-534): an attribute bit marks the base timestamp as the
time after which tombstones in the batch may be removed, and record timestamps are relative to it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Self

from respool.log.batch_walk import BatchAt
from respool.log.compaction.batch_chunks import BatchChunk
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.producers.producer_state import ProducerState
from respool.model.config_rules import LONG_MAX
from respool.model.errors import RequestError
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.model.topic_config import MIB, TopicConfig
from respool.ports.record_scan import Buffer, FilteredSections, KeyOffsets, Section
from respool.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    RecordBatch,
    records_of,
    seal,
)
from respool.records.compress import codec_of, compress, decompress
from respool.records.markers import read_marker
from respool.records.topic_codec import TopicCodec


class CleanedTransactions:
    """Tracks transactions during a compaction: aborted data can be removed at once, a marker when its data is gone.

    It gets every transactional batch and every marker of the segments, in order. The aborted transactions must be known
    in advance: an abort marker comes after its data, and may lie beyond the compacted range.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], *, begin: Offset) -> None:
        """`begin` is the first offset that is read; transactions that ended before are ignored."""
        reaching = (one for one in aborted if one.last_offset >= begin)
        self._upcoming = deque(sorted(reaching, key=lambda one: one.first_offset))
        # By producer: the aborted transaction that is open at this point, and whether it has data.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers with an open transaction that will commit and has data.
        self._committed: set[int] = set()
        self._aborted_with_data: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """True if this data batch was aborted; then its records can be removed."""
        self._advance_to(header.last_offset)
        open_here = self._aborted.get(header.producer_id)
        if open_here is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (open_here[0], True)
        return True

    def is_marker_needed(self, header: BatchHeader, *, is_commit: bool) -> bool:
        """True if this marker ends a transaction with remaining data."""
        self._advance_to(header.last_offset)
        if is_commit:
            had_data = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return had_data
        aborted, had_data = self._aborted.pop(header.producer_id, (None, False))
        if had_data and aborted is not None:
            self._aborted_with_data.append(aborted)
        return had_data

    def take_aborted_with_data(self) -> list[AbortedTransaction]:
        """Return the aborted transactions with remaining data whose markers were read since the last call.

        The others have no data left. Their markers may be removed; index entries for them would then hide later
        records.
        """
        needed, self._aborted_with_data = self._aborted_with_data, []
        return needed

    def _advance_to(self, offset: Offset) -> None:
        while self._upcoming and self._upcoming[0].first_offset <= offset:
            begun = self._upcoming.popleft()
            self._aborted.setdefault(begun.producer_id, (begun, False))


# Larger batches (decompressed) are not opened and stay unchanged.
DECOMPRESSED_BYTES_MAX = 128 * MIB


class CleanBatch(NamedTuple):
    header: BatchHeader
    data: Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    # Records from here on are retained.
    end: Offset
    now_ms: int
    delete_retention_ms: int
    # Last offsets of batches that known producers may retry.
    producers_batches: frozenset[Offset]
    # Id and epoch of producers known by a marker only.
    producers_markers: frozenset[tuple[int, int]]
    # None: batches keep their codec, with its default level.
    codec: TopicCodec | None = None

    @classmethod
    def of(
        cls, config: TopicConfig, producers: Iterable[ProducerState], *, end: Offset, now_ms: int
    ) -> Self:
        states = list(producers)
        return cls(
            end=end,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            producers_batches=frozenset(
                batch.last_offset for state in states for batch in state.batches
            ),
            producers_markers=frozenset(
                (state.producer_id, state.epoch) for state in states if not state.batches
            ),
            codec=TopicCodec.of(config),
        )

    def level_of(self, codec: Codec) -> int | None:
        """The topic's compression level for this codec; None: the codec's default."""
        return None if self.codec is None or self.codec.codec != codec else self.codec.level

    @property
    def delete_horizon_ms(self) -> int:
        return min(self.now_ms + self.delete_retention_ms, LONG_MAX)

    def has_passed(self, header: BatchHeader) -> bool:
        """True if the batch's delete horizon has passed."""
        return header.has_delete_horizon and header.base_timestamp <= self.now_ms

    def needs_header(self, header: BatchHeader) -> bool:
        """True if the batch is part of a producer's state."""
        if not header.has_producer_id:
            return False
        if header.is_control:
            return (header.producer_id, header.producer_epoch) in self.producers_markers
        return header.last_offset in self.producers_batches


class BatchRetention(Enum):
    RETAIN = "unchanged"
    REMOVE = "without its records"
    FILTER = "decided per record"
    ADD_HORIZON = "retained until a delete horizon"


class BatchCleaner:
    """Processes all batches of one compaction, in order."""

    def __init__(
        self, *, keys: KeyOffsets, rules: CleaningRules, transactions: CleanedTransactions
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._transactions = transactions
        # The number of changed batches.
        self.changed = 0
        # False if batches must not grow: positions in a segment have 31 bits.
        self.may_grow = True

    def clean(self, chunk: BatchChunk, *, is_last: bool) -> Iterator[CleanBatch]:
        """Yield what is retained of these batches; with `is_last`, at least the header of the last one."""
        last = chunk.batches[-1] if is_last else None
        # Uncompressed batches are filtered many at a time, compressed ones one by one.
        run: list[tuple[BatchAt, BatchRetention]] = []
        for batch in chunk.batches:
            retention = self._retention_of(chunk, batch)
            if retention is BatchRetention.FILTER and batch.header.codec_bits:
                yield from self._clean_run(chunk, run, last)
                run = []
                yield from self._clean_compressed(chunk, batch, needs_header=batch is last)
            else:
                run.append((batch, retention))
        yield from self._clean_run(chunk, run, last)

    def _retention_of(self, chunk: BatchChunk, batch: BatchAt) -> BatchRetention:
        header = batch.header
        if header.base_offset >= self._rules.end:
            return BatchRetention.RETAIN
        if header.attributes & CONTROL_BIT:
            return (
                self._retention_of_marker(chunk, batch)
                if header.record_count
                else BatchRetention.REMOVE
            )
        # Also for a batch without records: while its header stays, so must the marker.
        is_aborted = header.attributes & TRANSACTIONAL_BIT and self._transactions.is_aborted(header)
        return (
            BatchRetention.REMOVE
            if is_aborted or not header.record_count
            else BatchRetention.FILTER
        )

    def _retention_of_marker(self, chunk: BatchChunk, batch: BatchAt) -> BatchRetention:
        header = batch.header
        marker = read_marker(RecordBatch(header, chunk.bytes_of(batch)))
        # Other control records are retained.
        if marker is None or self._transactions.is_marker_needed(
            header, is_commit=marker.is_commit
        ):
            return BatchRetention.RETAIN
        if self._rules.has_passed(header):
            return BatchRetention.REMOVE
        return (
            BatchRetention.RETAIN
            if header.has_delete_horizon or not self.may_grow
            else BatchRetention.ADD_HORIZON
        )

    def _clean_run(
        self,
        chunk: BatchChunk,
        run: Sequence[tuple[BatchAt, BatchRetention]],
        last: BatchAt | None,
    ) -> Iterator[CleanBatch]:
        opened = [batch for batch, retention in run if retention is BatchRetention.FILTER]
        sections = [
            self._section(one.header, one.position + HEADER_BYTES, one.end) for one in opened
        ]
        filtered = (
            self._keys.filter_records(chunk.data, sections, end=self._rules.end)
            if sections
            else None
        )
        index = 0
        for batch, retention in run:
            data = chunk.bytes_of(batch)
            needs_header = batch is last
            if retention is BatchRetention.FILTER:
                assert filtered is not None
                left = self._filtered_batch(batch.header, data, filtered, index, needs_header)
                index += 1
            elif retention is BatchRetention.RETAIN:
                left = CleanBatch(batch.header, data)
            elif retention is BatchRetention.REMOVE:
                left = self._header_only(batch.header, data, needs_header)
            else:
                left = self._with_horizon(batch.header, data)
                # That invalidated the filter result, so filter the rest again.
                if index < len(opened):
                    rest = sections[index:]
                    filtered = self._keys.filter_records(chunk.data, rest, end=self._rules.end)
                    sections, opened, index = rest, opened[index:], 0
            if left is not None:
                yield left

    def _clean_compressed(
        self, chunk: BatchChunk, batch: BatchAt, *, needs_header: bool
    ) -> Iterator[CleanBatch]:
        data = chunk.bytes_of(batch)
        records = open_records(RecordBatch(batch.header, data))
        if records is None:
            yield CleanBatch(batch.header, data)
            return
        section = self._section(batch.header, 0, len(records))
        filtered = self._keys.filter_records(records, [section], end=self._rules.end)
        left = self._filtered_batch(batch.header, data, filtered, 0, needs_header)
        if left is not None:
            yield left

    def _section(self, header: BatchHeader, begin: int, end: int) -> Section:
        return section_of(header, begin, end, drop_tombstones=self._rules.has_passed(header))

    def _filtered_batch(
        self,
        header: BatchHeader,
        data: Buffer,
        filtered: FilteredSections,
        index: int,
        needs_header: bool,
    ) -> CleanBatch | None:
        retained, tombstones, timestamp_delta_max = filtered.summaries[index]
        assert tombstones <= max(retained, 0) <= max(header.record_count, 0)
        # For a batch that extends beyond the end, later tombstones were not processed yet.
        gets_horizon = (
            tombstones > 0
            and not header.has_delete_horizon
            and header.next_offset <= self._rules.end
            and self.may_grow
        )
        if retained < 0 or (retained == header.record_count and not gets_horizon):
            return CleanBatch(header, data)
        if not retained:
            return self._header_only(header, data, needs_header)
        shift = header.base_timestamp - self._rules.delete_horizon_ms if gets_horizon else 0
        records = filtered.retained_records(index, timestamp_shift=shift)
        header = header._replace(
            record_count=retained, max_timestamp=header.max_timestamp_of(timestamp_delta_max)
        )
        return self._rewrite(header, records, gets_horizon=gets_horizon)

    def _with_horizon(self, header: BatchHeader, data: Buffer) -> CleanBatch:
        """Return the batch with a delete horizon."""
        records = open_records(RecordBatch(header, memoryview(data)))
        if records is None:
            return CleanBatch(header, data)
        # No record is before the batch's base offset, so all are retained.
        section = section_of(header, 0, len(records))
        filtered = self._keys.filter_records(records, [section], end=header.base_offset)
        if filtered.summaries[0].retained < 0:
            return CleanBatch(header, data)
        shift = header.base_timestamp - self._rules.delete_horizon_ms
        moved = filtered.retained_records(0, timestamp_shift=shift)
        return self._rewrite(header, moved, gets_horizon=True)

    def _rewrite(self, header: BatchHeader, records: Buffer, *, gets_horizon: bool) -> CleanBatch:
        self.changed += 1
        if gets_horizon:
            header = header._replace(
                attributes=header.attributes | DELETE_HORIZON_BIT,
                base_timestamp=self._rules.delete_horizon_ms,
            )
        if header.codec_bits:
            codec = codec_of(header.codec_bits)
            records = compress(codec, records, self._rules.level_of(codec))
        return CleanBatch(*seal(header, records))

    def _header_only(
        self, header: BatchHeader, data: Buffer, needs_header: bool
    ) -> CleanBatch | None:
        """Return the header without records, as Kafka does, if it is needed."""
        is_needed = needs_header or self._rules.needs_header(header)
        if is_needed and not header.record_count:
            return CleanBatch(header, data)
        self.changed += 1
        if not is_needed:
            return None
        return CleanBatch(
            *seal(
                header._replace(
                    attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT) | Codec.NONE,
                    base_timestamp=NO_TIMESTAMP,
                    record_count=0,
                ),
                b"",
            )
        )


def section_of(
    header: BatchHeader, begin: int, end: int, *, drop_tombstones: bool = False
) -> Section:
    return Section(
        begin,
        end,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        drop_tombstones,
    )


def open_records(batch: RecordBatch) -> Buffer | None:
    """The decompressed records of a batch; None if they cannot be decompressed.

    Stored batches are not validated inside. An unreadable batch has no keys and stays unchanged.
    """
    codec_bits = batch.header.codec_bits
    if not codec_bits:
        return records_of(batch)
    try:
        return decompress(codec_of(codec_bits), records_of(batch), limit=DECOMPRESSED_BYTES_MAX)
    except RequestError:
        return None
