"""Reads of archived records: batches by offset, aborted transactions, records by time."""

import asyncio
from collections import OrderedDict
from functools import partial
from typing import NamedTuple

from respool.archive.batch_window import find_window, headers_in
from respool.archive.manifest import Manifest
from respool.archive.manifest_entry import ArchivedSegment
from respool.archive.segment_trailer import SegmentTrailer
from respool.broker.archive.chunk_cache import ChunkCache
from respool.log.partition_log import AbortedTransaction, TimestampedOffset
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.errors import RequestError
from respool.model.ids import Offset
from respool.ports.offload import Offload
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.record import find_time

# Batches that decompress to more are not opened; a lookup by time ends at their first record.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
# Number of sequential readers that are tracked for read-ahead.
STREAMS_MAX = 1_000


class ArchivedBatches(NamedTuple):
    records: bytes
    # The offset after the last record.
    end: Offset
    # The aborted transactions among the records; None if the reader does not need them.
    aborted: list[AbortedTransaction] | None


class ArchivedReads:
    def __init__(self, chunks: ChunkCache, *, offload: Offload, read_ahead_bytes: int) -> None:
        self._chunks = chunks
        self._offload = offload
        self._read_ahead_bytes = read_ahead_bytes
        # By object and offset at which a sequential reader continues: the number of chunks to read ahead.
        self._streams: OrderedDict[tuple[str, Offset], int] = OrderedDict()

    async def batches(
        self,
        manifest: Manifest,
        segment: ArchivedSegment,
        *,
        offset: Offset,
        max_offset: Offset,
        bytes_max: int,
        with_empty: bool = False,
    ) -> ArchivedBatches:
        """Read whole batches from the one with `offset` on, within one chunk, or one batch that is larger.

        Raises:
            ArchiveUnavailable, ArchiveCorrupt: they cannot be read.
        """
        trailer = await self._chunks.trailer(segment)
        end = min(max_offset, segment.next)
        position = trailer.position_before(offset)
        number = position // trailer.chunk_bytes
        chunk = memoryview(await self._chunks.chunk(segment, trailer, number))
        view = chunk[position - number * trailer.chunk_bytes :]
        while True:
            window = find_window(
                view, offset=offset, max_offset=end, bytes_max=bytes_max, with_empty=with_empty
            )
            is_whole = (number + 1) * trailer.chunk_bytes >= segment.log_bytes
            if not window.bytes_needed or is_whole:
                break
            # The first batch continues in the next chunk.
            number += 1
            following = await self._chunks.chunk(segment, trailer, number)
            view = memoryview(b"".join((view, following)))
        if window.end > window.begin or window.next_offset > offset:
            self._read_ahead(
                manifest, segment, trailer, offset=offset, end=window.next_offset, number=number
            )
        return ArchivedBatches(bytes(view[window.begin : window.end]), window.next_offset, None)

    def _read_ahead(
        self,
        manifest: Manifest,
        segment: ArchivedSegment,
        trailer: SegmentTrailer,
        *,
        offset: Offset,
        end: Offset,
        number: int,
    ) -> None:
        """Download the next chunks for a reader that continues where its last read ended: 1, 2, then 4."""
        prefix = manifest.keys.prefix
        depth = self._streams.pop((prefix, offset), 0)
        most = self._read_ahead_bytes // trailer.chunk_bytes
        self._streams[prefix, end] = min(max(1, depth * 2), max(1, most))
        while len(self._streams) > STREAMS_MAX:
            self._streams.popitem(last=False)
        if not depth or not most:
            return
        for ahead in range(number + 1, number + 1 + depth):
            if ahead * trailer.chunk_bytes < segment.log_bytes:
                self._chunks.read_ahead(segment, trailer, ahead)

    async def aborted(
        self, manifest: Manifest, begin: Offset, end: Offset
    ) -> list[AbortedTransaction]:
        """Archived aborted transactions with records in [begin, end). Raises as `batches`."""
        segments = manifest.with_aborts(begin, end)
        trailers = await asyncio.gather(*(self._chunks.trailer(one) for one in segments))
        return [
            AbortedTransaction(one.producer_id, one.first_offset, one.marker_offset, Offset(0))
            for trailer in trailers
            for one in trailer.aborted
            if one.first_offset < end and one.marker_offset >= begin
        ]

    async def first_at_or_after(
        self, manifest: Manifest, timestamp_ms: int, *, begin: Offset, max_offset: Offset
    ) -> TimestampedOffset | None:
        """Find the first archived record from `begin` on with that time or a later one. Raises as `batches`."""
        for segment in manifest.reaching(timestamp_ms):
            if segment.next <= begin:
                continue
            if segment.base >= max_offset:
                return None
            found = await self._find_time(
                segment, timestamp_ms, begin=begin, max_offset=min(max_offset, segment.next)
            )
            if found is not None:
                return found
        return None

    async def latest(self, manifest: Manifest, *, begin: Offset) -> TimestampedOffset | None:
        """Find the first archived record with the largest time. Raises as `batches`."""
        segments = [one for one in manifest.segments if one.next > begin]
        largest = max((one.largest_timestamp for one in segments), default=-1)
        while largest >= 0:
            found = await self.first_at_or_after(
                manifest, largest, begin=begin, max_offset=Offset(2**63 - 1)
            )
            if found is not None:
                return found
            # The record was deleted: find the largest of the others.
            largest = max(
                (one.largest_timestamp for one in segments if one.largest_timestamp < largest),
                default=-1,
            )
        return None

    async def _find_time(
        self, segment: ArchivedSegment, timestamp_ms: int, *, begin: Offset, max_offset: Offset
    ) -> TimestampedOffset | None:
        trailer = await self._chunks.trailer(segment)
        offset = max(begin, trailer.offset_before_time(timestamp_ms))
        position = trailer.position_before(offset)
        while position < segment.log_bytes:
            number = position // trailer.chunk_bytes
            chunk = memoryview(await self._chunks.chunk(segment, trailer, number))
            view = chunk[position - number * trailer.chunk_bytes :]
            found = headers_in(view)
            if not found:
                batch = await self._whole_batch(segment, trailer, position)
                found, view = [(0, batch.header)], memoryview(batch.data)
            for at, header in found:
                if header.next_offset > max_offset:
                    return None
                if header.latest_timestamp >= timestamp_ms and header.last_offset >= begin:
                    batch = RecordBatch(header, view[at : at + header.size])
                    record = await self._offload.run(
                        partial(_first_record, batch, timestamp_ms, begin)
                    )
                    if record is not None:
                        return record
            at, header = found[-1]
            position += at + header.size
        return None

    async def _whole_batch(
        self, segment: ArchivedSegment, trailer: SegmentTrailer, position: int
    ) -> RecordBatch:
        """Read a batch that spans several chunks."""
        number = position // trailer.chunk_bytes
        data = bytes(await self._chunks.chunk(segment, trailer, number))[
            position - number * trailer.chunk_bytes :
        ]
        while not (found := headers_in(memoryview(data))):
            number += 1
            if number * trailer.chunk_bytes >= segment.log_bytes:
                raise ArchiveCorrupt(
                    f"{segment.key}: its bytes end within the batch at byte {position}"
                )
            data += bytes(await self._chunks.chunk(segment, trailer, number))
        header: BatchHeader = found[0][1]
        return RecordBatch(header, data[: header.size])


def _first_record(batch: RecordBatch, timestamp_ms: int, begin: Offset) -> TimestampedOffset | None:
    header = batch.header
    try:
        found = find_time(batch, timestamp_ms, from_offset=begin, limit=DECOMPRESSED_BYTES_MAX)
        if found is not None:
            return TimestampedOffset(*found, header.leader_epoch)
        if header.base_offset < begin:
            return None
    except RequestError:
        # The contents of stored batches were not validated. For one that cannot be opened, only its header is used.
        pass
    return TimestampedOffset(
        max(header.base_offset, begin), header.max_timestamp, header.leader_epoch
    )
