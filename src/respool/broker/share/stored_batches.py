"""The batches of one read, and which of their records may be delivered to a share group.

Nothing is decompressed, except batches that lost records to compaction: which ones are left is not in their headers.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from respool.coordination.share.acquisition import FoundRecords, RecordSpan
from respool.log.partition_log import AbortedTransaction, TailBatches
from respool.model.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from respool.model.ids import Offset
from respool.ports.record_scan import KeyHasher, RecordScanner, Section
from respool.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_BYTES,
    STAMP_BYTES,
    TRANSACTIONAL_BIT,
    RecordBatch,
    read_header,
)
from respool.records.compress import codec_of, decompress
from respool.records.record import iterate_times

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
_BASE_AND_LENGTH = Struct(">qi").unpack_from
# From the attributes on: attributes, last offset delta, two timestamps, producer id, its epoch, sequence, count.
_FACTS = Struct(">hiqqqhii").unpack_from
_FACTS_AT = 21
assert _FACTS_AT + Struct(">hiqqqhii").size == HEADER_BYTES

Buffers = Sequence[bytes | memoryview]


class SharedBatch(NamedTuple):
    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int
    record_count: int
    buffers: Buffers
    size: int

    @property
    def is_whole(self) -> bool:
        """True if every offset has a record."""
        return self.record_count == self.last_offset - self.base_offset + 1


def stored_batches(records: bytes | memoryview | TailBatches) -> list[SharedBatch]:
    """The whole batches of a read; the last one may be truncated."""
    if isinstance(records, TailBatches):
        if len(records.buffers) > 1:
            return _of_pairs(records.buffers)
        records = records.buffers[0] if records.buffers else b""
    view = memoryview(records)
    found: list[SharedBatch] = []
    position, size = 0, len(view)
    while position + HEADER_BYTES <= size:
        base_offset, length = _BASE_AND_LENGTH(view, position)
        end = position + LENGTH_BYTES + length
        if end > size:
            break
        facts = _FACTS(view, position + _FACTS_AT)
        found.append(_batch(base_offset, facts, (view[position:end],), end - position))
        position = end
    return found


def _of_pairs(buffers: Buffers) -> list[SharedBatch]:
    """The tail keeps each batch as the leader's first bytes and the producer's remaining ones."""
    found: list[SharedBatch] = []
    for index in range(0, len(buffers), 2):
        head, rest = buffers[index], buffers[index + 1]
        base_offset, _ = _BASE_AND_LENGTH(head, 0)
        facts = _FACTS(rest, _FACTS_AT - STAMP_BYTES)
        found.append(_batch(base_offset, facts, (head, rest), len(head) + len(rest)))
    return found


def _batch(base_offset: int, facts: tuple[int, ...], buffers: Buffers, size: int) -> SharedBatch:
    attributes, last_delta, _, _, producer_id, _, _, record_count = facts
    return SharedBatch(
        base_offset, base_offset + last_delta, attributes, producer_id, record_count, buffers, size
    )


def deliverable(
    batches: Sequence[SharedBatch],
    first: Offset,
    *,
    aborted: Sequence[AbortedTransaction] = (),
    keys: Mapping[int, int] | None = None,
) -> FoundRecords:
    """What of a read from `first` on may be delivered: no control records and none of aborted transactions."""
    spans: list[RecordSpan] = []
    for index, batch in enumerate(batches):
        if batch.attributes & CONTROL_BIT or not batch.record_count:
            continue
        if aborted and _is_aborted(batch, aborted):
            continue
        if batch.is_whole:
            spans.append(RecordSpan(batch.base_offset, batch.last_offset, index))
        else:
            spans += _spans_of(_offsets(batch), index)
    end = Offset(batches[-1].last_offset + 1) if batches else first
    return FoundRecords(first=first, end=max(first, end), spans=spans, keys=keys or {})


def is_keyed_quickly(batches: Sequence[SharedBatch], first: int, scanner: RecordScanner) -> bool:
    """True if `key_hashes` may run on the event loop."""
    new = [one for one in batches if one.last_offset >= first]
    return sum(one.size for one in new) <= scanner.quick_bytes_max and not any(
        one.attributes & CODEC_MASK for one in new
    )


def key_hashes(batches: Sequence[SharedBatch], first: int, hasher: KeyHasher) -> dict[int, int]:
    """The hash of the key of each record from `first` on that has a key; for order by key."""
    parts: list[bytes | memoryview] = []
    sections: list[Section] = []
    begin = 0
    for batch in batches:
        if batch.last_offset < first or batch.attributes & CONTROL_BIT or not batch.record_count:
            continue
        data = b"".join(batch.buffers)
        records: bytes | memoryview = memoryview(data)[HEADER_BYTES:]
        if batch.attributes & CODEC_MASK:
            codec = codec_of(batch.attributes & CODEC_MASK)
            try:
                records = decompress(codec, records, limit=DECOMPRESSED_BYTES_MAX)
            except (CorruptMessage, MessageTooLarge, UnsupportedCompressionType):
                continue
        end = begin + len(records)
        delta = batch.last_offset - batch.base_offset
        sections.append(Section(begin, end, batch.record_count, batch.base_offset, delta))
        parts.append(records)
        begin = end
    return hasher.hash_keys(b"".join(parts), sections, begin=first) if sections else {}


def _offsets(batch: SharedBatch) -> Iterable[int]:
    data = b"".join(batch.buffers)
    stored = RecordBatch(read_header(data), data)
    try:
        return [offset for offset, _ in iterate_times(stored, limit=DECOMPRESSED_BYTES_MAX)]
    except (CorruptMessage, MessageTooLarge, UnsupportedCompressionType):
        # Clients find the same out. It is delivered, so that the group rejects it and sees why.
        return range(batch.base_offset, batch.last_offset + 1)


def _spans_of(offsets: Iterable[int], index: int) -> list[RecordSpan]:
    spans: list[RecordSpan] = []
    for offset in offsets:
        if spans and spans[-1].last + 1 == offset:
            spans[-1] = spans[-1]._replace(last=offset)
        else:
            spans.append(RecordSpan(offset, offset, index))
    return spans


def _is_aborted(batch: SharedBatch, aborted: Sequence[AbortedTransaction]) -> bool:
    return bool(batch.attributes & TRANSACTIONAL_BIT) and any(
        one.producer_id == batch.producer_id
        and one.first_offset <= batch.base_offset <= one.last_offset
        for one in aborted
    )
