"""Validates every batch of a log file: which batches are intact, and where they end.

A batch is intact if its length fits the file, magic and checksum are right, and it starts at the next expected offset.
The checksum does not cover base offset and length; a write torn there fails the other checks. A compacted log has gaps,
but only below what is known to be durable, where no write can be torn; a follower's copy of one may have gaps anywhere.
"""

from collections.abc import Iterator

from respool.log.batch_walk import BatchAt
from respool.model.ids import Offset
from respool.model.topic_config import MIB
from respool.ports.disk import LogFile
from respool.records.batch import (
    HEADER_BYTES,
    LENGTH_BYTES,
    LENGTH_MIN,
    MAGIC,
    BatchHeader,
    read_header,
)
from respool.records.validate import check_stored

READ_BYTES = MIB


class SegmentScan:
    """Iterate once; then `position`, `next_offset` and `damage` say where the intact batches end and why."""

    def __init__(
        self, file: LogFile, base_offset: Offset, *, gaps_end: Offset | None = None
    ) -> None:
        """Below `gaps_end`, offsets may be missing."""
        self._file = file
        self._size = file.size
        self.position = 0
        self.next_offset = base_offset
        self._gaps_end = gaps_end if gaps_end is not None else base_offset
        # What is wrong at `position`; empty at the end of the file.
        self.damage = ""

    def __iter__(self) -> Iterator[BatchAt]:
        wanted = READ_BYTES
        while self.position < self._size and not self.damage:
            begin = self.position
            data = memoryview(self._file.read(begin, wanted))
            wanted = READ_BYTES
            while header := self._header_in(data, begin):
                end = self.position - begin + header.size
                if end > len(data):
                    wanted = max(READ_BYTES, header.size)
                    break
                if not check_stored(header, data[self.position - begin : end]):
                    self.damage = "the checksum does not match"
                    return
                yield BatchAt(self.position, header)
                self.position += header.size
                self.next_offset = header.next_offset

    def _header_in(self, data: memoryview, begin: int) -> BatchHeader | None:
        """Return the header at `position` if the data read from `begin` on contains it and it is plausible."""
        left = self._size - self.position
        if not left:
            return None
        if left < HEADER_BYTES:
            self.damage = f"{left} bytes are less than a header"
            return None
        at = self.position - begin
        if len(data) - at < HEADER_BYTES:
            return None
        header = read_header(data, at)
        self.damage = self._implausible(header, left)
        return None if self.damage else header

    def _implausible(self, header: BatchHeader, left: int) -> str:
        if header.magic != MAGIC:
            return f"magic {header.magic}"
        if not LENGTH_MIN <= header.length <= left - LENGTH_BYTES:
            return f"length {header.length} with {left} bytes left"
        if header.base_offset != self.next_offset and not (
            self.next_offset < header.base_offset < self._gaps_end
        ):
            return f"base offset {header.base_offset}, expected {self.next_offset}"
        if header.last_offset_delta < 0:
            return f"last offset delta {header.last_offset_delta}"
        return ""
