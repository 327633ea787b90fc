"""From a segment's bytes, as they are uploaded, to its trailer: walks batch headers, and checks every batch."""

from collections.abc import Sequence

from crc32c import crc32c

from respool.archive.segment_trailer import CHUNK_BYTES, ArchivedAbort, EpochStart, SegmentTrailer
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.ids import LeaderEpoch, Offset
from respool.records.batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    BatchHeader,
    read_header,
)

INDEX_INTERVAL_BYTES = 16 * 1024


class SegmentSummary:
    def __init__(self, base: Offset, *, name: str, chunk_bytes: int = CHUNK_BYTES) -> None:
        """`base` is the offset from which on the segment's records are archived."""
        self._name = name
        self._base = base
        self._chunk_bytes = chunk_bytes
        self._position = 0
        self._next: Offset | None = None
        # The position at which the current batch continues.
        self._batch: BatchHeader | None = None
        self._batch_left = 0
        self._batch_crc = 0
        # The beginning of a batch whose header is not complete.
        self._rest = b""
        self._chunk_crc = 0
        self._chunk_left = chunk_bytes
        self._sums: list[int] = []
        self._offsets: list[tuple[Offset, int]] = []
        self._times: list[tuple[int, Offset]] = []
        self._indexed_at = 0
        self.largest_timestamp = -1
        # The epochs of the batches, in order.
        self.epochs: list[LeaderEpoch] = []

    @property
    def log_bytes(self) -> int:
        return self._position

    def feed(self, data: bytes | memoryview) -> None:
        """The next bytes of the segment.

        Raises:
            ArchiveCorrupt: a batch is damaged, or does not follow the one before.
        """
        self._sum(data)
        view = memoryview(data)
        self._position += len(view)
        while view:
            if self._batch is None:
                view = self._begin_batch(view)
            elif self._batch_left:
                part = view[: self._batch_left]
                self._batch_crc = crc32c(part, self._batch_crc)
                self._batch_left -= len(part)
                view = view[len(part) :]
                if not self._batch_left:
                    self._end_batch(self._batch)
        if self._batch is not None and not self._batch_left:
            self._end_batch(self._batch)

    def _sum(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            part = view[: self._chunk_left]
            self._chunk_crc = crc32c(part, self._chunk_crc)
            self._chunk_left -= len(part)
            view = view[len(part) :]
            if not self._chunk_left:
                self._sums.append(self._chunk_crc)
                self._chunk_crc, self._chunk_left = 0, self._chunk_bytes

    def _begin_batch(self, view: memoryview) -> memoryview:
        needed = HEADER_BYTES - len(self._rest)
        begin = self._position - len(view) - len(self._rest)
        if len(view) < needed:
            self._rest += bytes(view)
            return view[len(view) :]
        head = self._rest + bytes(view[:needed])
        header = read_header(head)
        expected = self._base if self._next is None else self._next
        # The first batch may begin before `base`, if the log start lies within it. A compacted log's gaps are not
        # damage.
        first = header.next_offset - 1 if self._next is None else header.base_offset
        is_next = first >= expected
        if header.magic != MAGIC or header.length < LENGTH_MIN or not is_next:
            raise ArchiveCorrupt(
                f"{self._name} at byte {begin}: no batch that follows offset {expected}; nothing is archived from here"
            )
        self._rest = b""
        self._batch = header
        self._batch_left = header.size - HEADER_BYTES
        self._batch_crc = crc32c(head[CRC_COVERS_FROM:])
        if begin and begin - self._indexed_at >= INDEX_INTERVAL_BYTES:
            self._offsets.append((header.last_offset, begin))
            self._indexed_at = begin
        rest = view[needed:]
        if not self._batch_left:
            self._end_batch(header)
        return rest

    def _end_batch(self, header: BatchHeader) -> None:
        if self._batch_crc != header.crc:
            raise ArchiveCorrupt(
                f"{self._name}: the batch at offset {header.base_offset} fails its checksum; "
                "nothing is archived from here"
            )
        if header.latest_timestamp > self.largest_timestamp:
            self.largest_timestamp = header.latest_timestamp
            self._times.append((header.latest_timestamp, header.last_offset))
        if not self.epochs or header.leader_epoch != self.epochs[-1]:
            self.epochs.append(header.leader_epoch)
        self._next = header.next_offset
        self._batch = None

    def finish(
        self,
        end: Offset,
        *,
        aborted: Sequence[ArchivedAbort],
        producers: bytes,
        epochs: Sequence[EpochStart],
    ) -> SegmentTrailer:
        """Complete the summary: all bytes were fed, and the segment's records end before `end`.

        Raises:
            ArchiveCorrupt: the bytes end within a batch, or beyond `end`.
        """
        if self._batch is not None or self._rest or self._next is None or self._next > end:
            raise ArchiveCorrupt(
                f"{self._name}: its bytes do not end at offset {end}; nothing is archived from here"
            )
        if self._chunk_left != self._chunk_bytes:
            self._sums.append(self._chunk_crc)
        return SegmentTrailer(
            base=self._base,
            next=end,
            log_bytes=self._position,
            chunk_bytes=self._chunk_bytes,
            offsets=self._offsets,
            times=_thinned(self._times),
            aborted=aborted,
            producers=producers,
            epochs=epochs,
            chunk_sums=self._sums,
        )


def _thinned(times: list[tuple[int, Offset]]) -> list[tuple[int, Offset]]:
    """At most a few thousand entries: a lookup walks the headers from one to the next."""
    step = -(-len(times) // 4096) if times else 1
    return times[::step]
