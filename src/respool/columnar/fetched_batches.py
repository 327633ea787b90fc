"""A Fetch reply's records -> the batches whose records are to be shown, each opened, in the order of their offsets.

Here is everything that is decided per batch: what is whole, what is damaged, what belongs to an aborted transaction,
what lies outside the range. Records are looked at elsewhere, many batches at once.

A reply may begin with a batch that holds `begin` in its middle, and end with a batch that is cut off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from respool.columnar.errors import BatchFormatUnknown, BatchTooLarge, CorruptBatch
from respool.model.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from respool.records.batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Codec,
    RecordBatch,
    read_header,
)
from respool.records.compress import codec_of, decompress
from respool.records.markers import read_marker
from respool.records.seal import LENGTH_MIN

OFFSET_MAX = 2**63 - 1


class OpenBatch(NamedTuple):
    header: BatchHeader
    # Where the records lie: in what was fetched, or in bytes of their own if they were compressed.
    begin: int
    end: int
    opened: bytes | None


@dataclass(slots=True, kw_only=True)
class FetchedBatches:
    data: memoryview
    begin: int
    end: int | None
    aborted: "AbortedTransactions"
    decompressed_max: int
    check_crc: bool
    # From here on nothing has been looked at.
    next_offset: int = 0
    whole_batches: int = 0
    # The whole size of a batch that is cut off at the end, once that can be told.
    cut_batch_bytes: int | None = None
    decompressed: int = 0

    def opened(self) -> Iterator[OpenBatch]:
        """Batch after batch, until the data or the range ends, or enough has been decompressed for once.

        Raises:
            BatchUnreadable: one of its kinds; the fields above then tell of what comes before.
        """
        self.next_offset = self.begin
        for at, header in self._whole():
            if self.end is not None and header.base_offset >= self.end:
                # There is nothing between the batch before and this one.
                self.next_offset = max(self.next_offset, header.base_offset)
                return
            if header.codec_bits and self.decompressed >= self.decompressed_max:
                return
            if header.last_offset >= self.begin:
                self._check(at, header)
            if self._is_shown(at, header):
                yield self._open(at, header)
            self.whole_batches += 1
            self.next_offset = max(self.next_offset, header.next_offset)

    def _whole(self) -> Iterator[tuple[int, BatchHeader]]:
        data, at, offset_min = self.data, 0, 0
        while len(data) - at >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(data[at + 8 : at + LENGTH_BYTES], signed=True)
            offset = int.from_bytes(data[at : at + 8], signed=True)
            if len(data) - at > MAGIC_AT and data[at + MAGIC_AT] != MAGIC:
                raise BatchFormatUnknown(
                    offset=offset, why=f"its format is {data[at + MAGIC_AT]}, we know {MAGIC}"
                )
            if size < LENGTH_BYTES + LENGTH_MIN:
                raise CorruptBatch(offset=offset, why=f"it is {size} bytes long")
            if size > len(data) - at:
                self.cut_batch_bytes = size
                return
            header = read_header(data, at)
            last = header.last_offset
            if not 0 <= offset_min <= offset <= last < OFFSET_MAX:
                raise CorruptBatch(
                    offset=offset, why=f"it ends at {last}, and comes after {offset_min - 1}"
                )
            offset_min = last + 1
            yield at, header
            at += size

    def _check(self, at: int, header: BatchHeader) -> None:
        if not self.check_crc:
            return
        crc = crc32c(self.data[at + CRC_COVERS_FROM : at + header.size])
        if crc != header.crc:
            raise CorruptBatch(
                offset=header.base_offset,
                why=f"its checksum is {crc:08x}, where {header.crc:08x} is written",
            )

    def _is_shown(self, at: int, header: BatchHeader) -> bool:
        self.aborted.begin_up_to(header.last_offset)
        if header.is_control:
            marker = read_marker(RecordBatch(header, self.data[at : at + header.size]))
            if marker is not None:
                self.aborted.on_marker(header.producer_id)
            return False
        if header.last_offset < self.begin:
            return False
        return not (header.is_transactional and self.aborted.holds(header.producer_id))

    def _open(self, at: int, header: BatchHeader) -> OpenBatch:
        begin, end = at + HEADER_BYTES, at + header.size
        if header.codec_bits == Codec.NONE:
            return OpenBatch(header, begin, end, None)
        if header.record_count == 0 and begin == end:
            # Compaction removed every record; it does not leave an empty compressed stream behind.
            return OpenBatch(header, begin, end, None)
        offset = header.base_offset
        limit = self.decompressed_max
        try:
            opened = decompress(codec_of(header.codec_bits), self.data[begin:end], limit=limit)
        except CorruptMessage as error:
            raise CorruptBatch(offset=offset, why=str(error)) from error
        except MessageTooLarge as error:
            raise BatchTooLarge(offset=offset, limit=limit) from error
        except UnsupportedCompressionType as error:
            raise BatchFormatUnknown(offset=offset, why=str(error)) from error
        self.decompressed += len(opened)
        return OpenBatch(header, 0, len(opened), opened)


class AbortedTransactions:
    """Whose records are void at the offset we have come to.

    A producer's are from the first offset of an aborted transaction up to the marker that ends it. Markers of
    transactions that are not in the list change nothing.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._to_come = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._begun: set[int] = set()

    def begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[-1][1] <= offset:
            self._begun.add(self._to_come.pop()[0])

    def on_marker(self, producer_id: int) -> None:
        self._begun.discard(producer_id)

    def holds(self, producer_id: int) -> bool:
        return producer_id in self._begun
