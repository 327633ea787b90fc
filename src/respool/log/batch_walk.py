"""Iterate over the batch headers of a log file without reading the records between them.

Callers start at a batch boundary and end at one; an implausible header means a wrong position or a damaged file.
"""

from collections.abc import Iterator
from typing import NamedTuple

from respool.model.errors import SegmentCorrupt
from respool.ports.disk import LogFile
from respool.records.batch import HEADER_BYTES, LENGTH_MIN, MAGIC, BatchHeader, read_header

# One read covers many small batches; for large ones it costs little more than a header alone.
WINDOW_BYTES = 4096


class BatchAt(NamedTuple):
    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        return self.position + self.header.size


def walk_headers(
    file: LogFile, position: int, end: int, *, cached_only: bool = False
) -> Iterator[BatchAt]:
    """Yield each batch from `position` to `end`, in order.

    Raises:
        SegmentCorrupt: there is no whole batch where one should start.
        NotCached: `cached_only`, and a header would have to come from the disk.
    """
    while position < end:
        window = file.read(position, min(WINDOW_BYTES, end - position), cached_only=cached_only)
        at = 0
        while at + HEADER_BYTES <= len(window):
            header = read_header(window, at)
            begin = position + at
            if header.magic != MAGIC or not LENGTH_MIN <= header.length <= end - begin - 12:
                raise SegmentCorrupt(
                    f"{file.path}: no batch at byte {begin} of {end}: "
                    f"magic {header.magic}, length {header.length}"
                )
            yield BatchAt(begin, header)
            at += header.length + 12
        if not at:
            raise SegmentCorrupt(
                f"{file.path}: {len(window)} bytes at byte {position} of {end}, "
                f"a batch's header has {HEADER_BYTES}"
            )
        position += at
