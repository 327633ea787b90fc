"""What a compaction leaves of each batch: all of it as it was, some records, only its header, or nothing.

A batch that loses records keeps its offsets: base and last offset stay, and so do sequence and codec; length, count,
largest timestamp and checksum follow. A header stays without records where somebody needs it:

- it is one of the last batches of a producer that is still known, who may send it again;
- it is the last of its new segment. So every segment ends where the next one begins, and none is empty.

A deletion (a key with no value) outlives the records it deletes, for readers who have seen those. When it is met first,
its batch gets a delete horizon (KIP-534): an attribute's bit says that the base timestamp is the time after which
deletions in the batch may go, and the records' timestamps count from there.
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
from respool.ports.record_scan import Buffer, KeyOffsets, Section, Sifting
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


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTransaction], *, begin: Offset) -> None:
        """`begin` is where the feeding begins; what ended before is not waited for."""
        reaching = (one for one in aborted if one.last_offset >= begin)
        self._to_come = deque(sorted(reaching, key=lambda one: one.first_offset))
        # By producer: the aborted transaction that is open here, and whether any of its data was met.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers whose open transaction will be committed and of which data was met.
        self._committed: set[int] = set()
        self._still_needed: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Was this batch of data aborted? Then nobody may see its records, and they may go."""
        self._go_to(header.last_offset)
        open_here = self._aborted.get(header.producer_id)
        if open_here is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (open_here[0], True)
        return True

    def is_marker_needed(self, header: BatchHeader, *, is_commit: bool) -> bool:
        """Does this marker end a transaction of which data was met?"""
        self._go_to(header.last_offset)
        if is_commit:
            had_data = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return had_data
        aborted, had_data = self._aborted.pop(header.producer_id, (None, False))
        if had_data and aborted is not None:
            self._still_needed.append(aborted)
        return had_data

    def take_still_needed(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were met since this was asked last, and which readers must know of.

        Of the others no data is left. Without their markers, which may go, they would hide what follows them.
        """
        needed, self._still_needed = self._still_needed, []
        return needed

    def _go_to(self, offset: Offset) -> None:
        while self._to_come and self._to_come[0].first_offset <= offset:
            begun = self._to_come.popleft()
            self._aborted.setdefault(begun.producer_id, (begun, False))


# A batch that is larger than this when decompressed is not opened; it stays as it is.
DECOMPRESSED_BYTES_MAX = 128 * MIB


class CleanBatch(NamedTuple):
    header: BatchHeader
    data: Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    # Records from here on are not touched.
    end: Offset
    now_ms: int
    delete_retention_ms: int
    # The last offsets of batches that known producers may send again.
    producers_batches: frozenset[Offset]
    # Id and epoch of producers of which only a marker is known.
    producers_markers: frozenset[tuple[int, int]]

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
        )

    @property
    def delete_horizon_ms(self) -> int:
        return min(self.now_ms + self.delete_retention_ms, LONG_MAX)

    def has_passed(self, header: BatchHeader) -> bool:
        """Have readers had the time to see the deletions in this batch?"""
        return header.has_delete_horizon and header.base_timestamp <= self.now_ms

    def needs_header(self, header: BatchHeader) -> bool:
        """Does a producer need to know of this batch?"""
        if not header.has_producer_id:
            return False
        if header.is_control:
            return (header.producer_id, header.producer_epoch) in self.producers_markers
        return header.last_offset in self.producers_batches


class Fate(Enum):
    STAY = "as it is"
    GO = "without its records"
    OPEN = "to be decided record by record"
    AGE = "all of it, but not for ever"


class BatchCleaner:
    """Goes once through all batches of a compaction, in order."""

    def __init__(
        self, *, keys: KeyOffsets, rules: CleaningRules, transactions: CleanedTransactions
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._transactions = transactions
        # How many batches are not as they were.
        self.changed = 0
        # Whether a batch may become larger. Positions in a segment have 31 bits.
        self.may_grow = True

    def clean(self, chunk: BatchChunk, *, is_last: bool) -> Iterator[CleanBatch]:
        """What is left of these batches; with `is_last`, at least the header of the last one."""
        last = chunk.batches[-1] if is_last else None
        # Plain batches are opened many at a time, those that are compressed one by one.
        run: list[tuple[BatchAt, Fate]] = []
        for batch in chunk.batches:
            fate = self._fate(chunk, batch)
            if fate is Fate.OPEN and batch.header.codec_bits:
                yield from self._clean_run(chunk, run, last)
                run = []
                yield from self._clean_compressed(chunk, batch, needs_header=batch is last)
            else:
                run.append((batch, fate))
        yield from self._clean_run(chunk, run, last)

    def _fate(self, chunk: BatchChunk, batch: BatchAt) -> Fate:
        header = batch.header
        if header.base_offset >= self._rules.end:
            return Fate.STAY
        if header.attributes & CONTROL_BIT:
            return self._fate_of_marker(chunk, batch) if header.record_count else Fate.GO
        # Also of a batch without records: while its header stays, so must the marker.
        is_aborted = header.attributes & TRANSACTIONAL_BIT and self._transactions.is_aborted(header)
        return Fate.GO if is_aborted or not header.record_count else Fate.OPEN

    def _fate_of_marker(self, chunk: BatchChunk, batch: BatchAt) -> Fate:
        header = batch.header
        marker = read_marker(RecordBatch(header, chunk.bytes_of(batch)))
        # Other control records are none of ours.
        if marker is None or self._transactions.is_marker_needed(
            header, is_commit=marker.is_commit
        ):
            return Fate.STAY
        if self._rules.has_passed(header):
            return Fate.GO
        return Fate.STAY if header.has_delete_horizon or not self.may_grow else Fate.AGE

    def _clean_run(
        self,
        chunk: BatchChunk,
        run: Sequence[tuple[BatchAt, Fate]],
        last: BatchAt | None,
    ) -> Iterator[CleanBatch]:
        opened = [batch for batch, fate in run if fate is Fate.OPEN]
        sections = [
            self._section(one.header, one.position + HEADER_BYTES, one.end) for one in opened
        ]
        sifting = self._keys.sift(chunk.data, sections, end=self._rules.end) if sections else None
        index = 0
        for batch, fate in run:
            data = chunk.bytes_of(batch)
            needs_header = batch is last
            if fate is Fate.OPEN:
                assert sifting is not None
                left = self._left_of(batch.header, data, sifting, index, needs_header)
                index += 1
            elif fate is Fate.STAY:
                left = CleanBatch(batch.header, data)
            elif fate is Fate.GO:
                left = self._header_of(batch.header, data, needs_header)
            else:
                left = self._aging(batch.header, data)
                # That was a sifting of its own, so what follows must be sifted anew.
                if index < len(opened):
                    rest = sections[index:]
                    sifting = self._keys.sift(chunk.data, rest, end=self._rules.end)
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
        sifting = self._keys.sift(records, [section], end=self._rules.end)
        left = self._left_of(batch.header, data, sifting, 0, needs_header)
        if left is not None:
            yield left

    def _section(self, header: BatchHeader, begin: int, end: int) -> Section:
        return section_of(header, begin, end, drop_tombstones=self._rules.has_passed(header))

    def _left_of(
        self,
        header: BatchHeader,
        data: Buffer,
        sifting: Sifting,
        index: int,
        needs_header: bool,
    ) -> CleanBatch | None:
        kept, tombstones, timestamp_delta_max = sifting.verdicts[index]
        # Of a batch that reaches beyond the end, the deletions behind it have not been seen yet.
        gets_horizon = (
            tombstones > 0
            and not header.has_delete_horizon
            and header.next_offset <= self._rules.end
            and self.may_grow
        )
        if kept < 0 or (kept == header.record_count and not gets_horizon):
            return CleanBatch(header, data)
        if not kept:
            return self._header_of(header, data, needs_header)
        shift = header.base_timestamp - self._rules.delete_horizon_ms if gets_horizon else 0
        records = sifting.kept_records(index, timestamp_shift=shift)
        max_timestamp = header.base_timestamp + timestamp_delta_max
        # A producer's nonsense is left as it is.
        if header.is_log_append_time or not NO_TIMESTAMP <= max_timestamp <= LONG_MAX:
            max_timestamp = header.max_timestamp
        header = header._replace(record_count=kept, max_timestamp=max_timestamp)
        return self._rewritten(header, records, gets_horizon=gets_horizon)

    def _aging(self, header: BatchHeader, data: Buffer) -> CleanBatch:
        """The same batch with a delete horizon."""
        records = open_records(RecordBatch(header, memoryview(data)))
        if records is None:
            return CleanBatch(header, data)
        # None of it is before its own base offset, so all stays.
        section = section_of(header, 0, len(records))
        sifting = self._keys.sift(records, [section], end=header.base_offset)
        if sifting.verdicts[0].kept < 0:
            return CleanBatch(header, data)
        shift = header.base_timestamp - self._rules.delete_horizon_ms
        moved = sifting.kept_records(0, timestamp_shift=shift)
        return self._rewritten(header, moved, gets_horizon=True)

    def _rewritten(self, header: BatchHeader, records: Buffer, *, gets_horizon: bool) -> CleanBatch:
        self.changed += 1
        if gets_horizon:
            header = header._replace(
                attributes=header.attributes | DELETE_HORIZON_BIT,
                base_timestamp=self._rules.delete_horizon_ms,
            )
        if header.codec_bits:
            records = compress(codec_of(header.codec_bits), records)
        return CleanBatch(*seal(header, records))

    def _header_of(
        self, header: BatchHeader, data: Buffer, needs_header: bool
    ) -> CleanBatch | None:
        """Only the header, as Kafka leaves it, if it is needed."""
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
    """The records of a batch, decompressed; None when that cannot be done.

    We store what producers send without opening it. What cannot be opened has no keys and stays as it is.
    """
    codec_bits = batch.header.codec_bits
    if not codec_bits:
        return records_of(batch)
    try:
        return decompress(codec_of(codec_bits), records_of(batch), limit=DECOMPRESSED_BYTES_MAX)
    except RequestError:
        return None
