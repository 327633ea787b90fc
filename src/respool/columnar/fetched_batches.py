"""Selects the batches of a Fetch response whose records are returned, and decompresses them, in offset order.

Everything decided per batch is here: incomplete, damaged, aborted or out of range. Records are decoded elsewhere, many
batches at once.

A response may start with a batch that contains `begin` in the middle, and end with an incomplete batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from respool.columnar.batch_headers import (
    ATTRIBUTES,
    BAD_OFFSETS,
    BASE_OFFSET,
    BEGIN,
    CRC,
    END,
    ENDED,
    HEADER_COLUMNS,
    INCOMPLETE,
    LAST_OFFSET_DELTA,
    OTHER_FORMAT,
    PRODUCER_ID,
    RECORD_COUNT,
    walk_headers,
)
from respool.columnar.compiled import Numbers, readable
from respool.columnar.errors import (
    BatchFormatUnknown,
    BatchTooLarge,
    BatchUnreadable,
    CorruptBatch,
)
from respool.model.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from respool.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    RecordBatch,
    read_header,
)
from respool.records.compress import codec_of, decompress
from respool.records.markers import read_marker

# From a batch's records back to the start of its checksummed part.
_CRC_COVERS_BEFORE = HEADER_BYTES - CRC_COVERS_FROM


class OpenBatch(NamedTuple):
    # Its row in the header table.
    row: int
    size: int
    # The decompressed records; None if they were not compressed and are in the data.
    opened: bytes | None


@dataclass(slots=True, kw_only=True)
class FetchedBatches:
    data: memoryview
    begin: int
    end: int | None
    aborted: "AbortedTransactions"
    decompressed_max: int
    check_crc: bool
    # The headers of all whole batches in the data.
    headers: Numbers = field(init=False)
    # Nothing was read from this offset on.
    next_offset: int = field(init=False)
    whole_batches: int = 0
    # The full size of an incomplete last batch, once known.
    partial_batch_bytes: int | None = None
    _decompressed: int = 0
    # What follows the whole batches, and why it is not a whole batch.
    _rest_at: int = field(init=False)
    _rest_why: int = field(init=False)

    def __post_init__(self) -> None:
        data = readable(self.data)
        none = np.empty((0, HEADER_COLUMNS), dtype=np.int64)
        count, self._rest_at, self._rest_why = walk_headers(data, none)
        self.headers = np.empty((count, HEADER_COLUMNS), dtype=np.int64)
        walk_headers(data, self.headers)
        self.next_offset = self.begin

    def opened(self) -> Iterator[OpenBatch]:
        """Yield batches until the end of the data or range, or until enough was decompressed.

        Raises:
            BatchUnreadable: one of its subclasses; the fields above then describe what comes before.
        """
        for row, header in enumerate(self.headers.tolist()):
            base_offset: int = header[BASE_OFFSET]
            if self.end is not None and base_offset >= self.end:
                # Nothing between the previous batch and this one.
                self.next_offset = max(self.next_offset, base_offset)
                return
            attributes: int = header[ATTRIBUTES]
            if attributes & CODEC_MASK and self._decompressed >= self.decompressed_max:
                return
            last_offset: int = base_offset + header[LAST_OFFSET_DELTA]
            is_needed = last_offset >= self.begin
            if is_needed and self.check_crc:
                self._check(header)
            is_shown = self._is_shown(header, last_offset)
            if is_needed and is_shown:
                yield self._open(row, header)
            self.whole_batches += 1
            self.next_offset = max(self.next_offset, last_offset + 1)
        self._end()

    def _check(self, header: list[int]) -> None:
        crc = crc32c(self.data[header[BEGIN] - _CRC_COVERS_BEFORE : header[END]])
        if crc != header[CRC]:
            raise CorruptBatch(
                offset=header[BASE_OFFSET],
                why=f"its checksum is {crc:08x}, its header says {header[CRC]:08x}",
            )

    def _is_shown(self, header: list[int], last_offset: int) -> bool:
        attributes = header[ATTRIBUTES]
        self.aborted.begin_up_to(last_offset)
        is_void = self.aborted.holds(header[PRODUCER_ID])
        if attributes & CONTROL_BIT:
            if is_void and self._ends_transaction(header):
                self.aborted.on_marker(header[PRODUCER_ID])
            return False
        return not (attributes & TRANSACTIONAL_BIT and is_void)

    def _ends_transaction(self, header: list[int]) -> bool:
        batch = self.data[header[BEGIN] - HEADER_BYTES : header[END]]
        return read_marker(RecordBatch(read_header(batch), batch)) is not None

    def _open(self, row: int, header: list[int]) -> OpenBatch:
        begin, end, codec = header[BEGIN], header[END], header[ATTRIBUTES] & CODEC_MASK
        # Compaction may remove every record; it leaves no empty compressed stream.
        if not codec or (begin == end and header[RECORD_COUNT] == 0):
            return OpenBatch(row, end - begin, None)
        offset, limit = header[BASE_OFFSET], self.decompressed_max
        try:
            opened = decompress(codec_of(codec), self.data[begin:end], limit=limit)
        except CorruptMessage as error:
            raise CorruptBatch(offset=offset, why=str(error)) from error
        except MessageTooLarge as error:
            raise BatchTooLarge(offset=offset, limit=limit) from error
        except UnsupportedCompressionType as error:
            raise BatchFormatUnknown(offset=offset, why=str(error)) from error
        self._decompressed += len(opened)
        return OpenBatch(row, len(opened), opened)

    def _end(self) -> None:
        """The data after the whole batches may be the start of another one; everything else is an error."""
        if self._rest_why == ENDED:
            return
        size = LENGTH_BYTES + int.from_bytes(self._rest(8, LENGTH_BYTES), signed=True)
        if self._rest_why != INCOMPLETE:
            raise self._rest_error(size)
        self.partial_batch_bytes = size

    def _rest_error(self, size: int) -> BatchUnreadable:
        offset = int.from_bytes(self._rest(0, 8), signed=True)
        if self._rest_why == OTHER_FORMAT:
            magic = self._rest(MAGIC_AT, MAGIC_AT + 1)[0]
            return BatchFormatUnknown(
                offset=offset, why=f"its format is v{magic}, only v{MAGIC} is supported"
            )
        if self._rest_why == BAD_OFFSETS:
            last = read_header(self._rest(0, HEADER_BYTES)).last_offset
            ends = self.headers[:, BASE_OFFSET] + self.headers[:, LAST_OFFSET_DELTA]
            before = int(ends[-1]) if len(ends) else -1
            return CorruptBatch(offset=offset, why=f"it ends at {last}, but follows {before}")
        return CorruptBatch(offset=offset, why=f"it is {size} bytes long")

    def _rest(self, begin: int, end: int) -> memoryview:
        return self.data[self._rest_at + begin : self._rest_at + end]


class AbortedTransactions:
    """Tracks which producers' records are aborted at the current offset.

    A producer's records are aborted from the first offset of an aborted transaction to the marker that ends it. Markers
    of other transactions change nothing.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._upcoming = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._begun: set[int] = set()

    def begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1][1] <= offset:
            self._begun.add(self._upcoming.pop()[0])

    def on_marker(self, producer_id: int) -> None:
        self._begun.discard(producer_id)

    def holds(self, producer_id: int) -> bool:
        return producer_id in self._begun
