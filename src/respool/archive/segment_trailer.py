"""The trailer of an archived segment: what a reader needs besides the log's bytes.

```
 0                     log_bytes
 | batches, as on disk | offset index | time index | aborted | producers | epochs | chunk sums | footer |

 offset index entry, 8 bytes       time index entry, 12 bytes              aborted transaction, 24 bytes
 | relative | position |           | largest time so far | relative |      | producer id | first | marker |
 epoch, 12 bytes                   chunk sum, 4 bytes
 | epoch | start offset |          | CRC-32C of each `chunk_bytes` of the log's bytes |

 footer, 60 bytes, at the end
 | magic | base | next | log_bytes | chunk_bytes | six section lengths | CRC-32C of the trailer before it |
```
All numbers are big-endian. `relative` is an offset minus `base`: the last one of the batch at `position`, or of the
batch with the largest time so far. `producers` is a producer snapshot at `next` in Kafka's format, and may be empty.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, TypeVar, overload

from crc32c import crc32c

from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.ids import LeaderEpoch, Offset

MAGIC = b"RSPLSEG1"
CHUNK_BYTES = 4 * 1024 * 1024
# Larger trailers are refused before memory is taken.
TRAILER_BYTES_MAX = 256 * 1024 * 1024

_FOOTER = Struct(">8sqqIIIIIIIII")
FOOTER_BYTES = _FOOTER.size
_OFFSET = Struct(">II")
_TIME = Struct(">qI")
_ABORTED = Struct(">qqq")
_EPOCH = Struct(">iq")
_SUM = Struct(">I")


class ArchivedAbort(NamedTuple):
    """An aborted transaction whose marker is in the segment."""

    producer_id: int
    first_offset: Offset
    marker_offset: Offset


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


_T = TypeVar("_T")


class _Packed(Sequence[_T]):
    """Entries that are decoded on access: the trailer of a large segment has a hundred thousand."""

    __slots__ = ("_base", "_data")

    entry: Struct

    def __init__(self, data: memoryview, base: int) -> None:
        self._data = data
        self._base = base

    def __len__(self) -> int:
        return len(self._data) // self.entry.size

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> list[_T]: ...

    def __getitem__(self, index: int | slice) -> _T | list[_T]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index if index >= 0 else len(self) + index
        if not 0 <= at < len(self):
            raise IndexError(index)
        return self.unpacked(*self.entry.unpack_from(self._data, at * self.entry.size))

    def unpacked(self, *fields: int) -> _T:
        raise NotImplementedError


class _PackedOffsets(_Packed[tuple[Offset, int]]):
    entry = _OFFSET

    def unpacked(self, *fields: int) -> tuple[Offset, int]:
        return Offset(self._base + fields[0]), fields[1]


class _PackedTimes(_Packed[tuple[int, Offset]]):
    entry = _TIME

    def unpacked(self, *fields: int) -> tuple[int, Offset]:
        return fields[0], Offset(self._base + fields[1])


class _PackedSums(_Packed[int]):
    entry = _SUM

    def unpacked(self, *fields: int) -> int:
        return fields[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTrailer:
    base: Offset
    next: Offset
    log_bytes: int
    chunk_bytes: int
    # Pairs of the last offset of a batch and its position; both strictly increase. The first batch has no entry.
    offsets: Sequence[tuple[Offset, int]]
    # Pairs of a time, and the last offset of the first batch that reaches it; both strictly increase.
    times: Sequence[tuple[int, Offset]]
    aborted: Sequence[ArchivedAbort]
    # A producer snapshot at `next`.
    producers: bytes
    # The leader epochs up to `next`, from the partition's log start on.
    epochs: Sequence[EpochStart]
    chunk_sums: Sequence[int]

    def encode(self) -> bytes:
        base = self.base
        sections = [
            b"".join(_OFFSET.pack(last - base, position) for last, position in self.offsets),
            b"".join(_TIME.pack(time, last - base) for time, last in self.times),
            b"".join(_ABORTED.pack(*one) for one in self.aborted),
            self.producers,
            b"".join(_EPOCH.pack(*one) for one in self.epochs),
            b"".join(_SUM.pack(one) for one in self.chunk_sums),
        ]
        body = b"".join(sections)
        lengths = [len(one) for one in sections]
        footer = _FOOTER.pack(MAGIC, base, self.next, self.log_bytes, self.chunk_bytes, *lengths, 0)
        crc = crc32c(footer[:-4], crc32c(body))
        return body + footer[:-4] + _SUM.pack(crc)

    @classmethod
    def decode(cls, data: bytes | memoryview, *, name: str) -> "SegmentTrailer":
        """Decode a whole trailer.

        Raises:
            ArchiveCorrupt: it is damaged, or of a newer format.
        """
        if len(data) < FOOTER_BYTES:
            raise ArchiveCorrupt(
                f"{name}: a trailer of {len(data)} bytes, at least {FOOTER_BYTES} expected"
            )
        view = memoryview(data)
        magic, base, end, log_bytes, chunk_bytes, *lengths, crc = _FOOTER.unpack_from(
            view, len(view) - FOOTER_BYTES
        )
        if magic != MAGIC:
            raise ArchiveCorrupt(f"{name}: format {bytes(magic)!r}, this version reads {MAGIC!r}")
        computed = crc32c(view[:-4])
        if crc != computed:
            raise ArchiveCorrupt(f"{name}: trailer checksum {crc:#010x}, computed {computed:#010x}")
        if sum(lengths) != len(view) - FOOTER_BYTES or not chunk_bytes > 0 or end <= base:
            raise ArchiveCorrupt(
                f"{name}: the trailer's lengths contradict its size of {len(view)} bytes"
            )
        sections = []
        at = 0
        for length in lengths:
            sections.append(view[at : at + length])
            at += length
        offsets, times, aborted, producers, epochs, sums = sections
        sizes = (
            (offsets, _OFFSET),
            (times, _TIME),
            (aborted, _ABORTED),
            (epochs, _EPOCH),
            (sums, _SUM),
        )
        if any(len(section) % entry.size for section, entry in sizes):
            raise ArchiveCorrupt(f"{name}: a section of the trailer ends within an entry")
        found = cls(
            base=Offset(base),
            next=Offset(end),
            log_bytes=log_bytes,
            chunk_bytes=chunk_bytes,
            offsets=_PackedOffsets(offsets, base),
            times=_PackedTimes(times, base),
            aborted=[ArchivedAbort(*one) for one in _ABORTED.iter_unpack(aborted)],
            producers=bytes(producers),
            epochs=[EpochStart(*one) for one in _EPOCH.iter_unpack(epochs)],
            chunk_sums=_PackedSums(sums, 0),
        )
        if len(found.chunk_sums) != -(-log_bytes // chunk_bytes):
            raise ArchiveCorrupt(f"{name}: {len(found.chunk_sums)} checksums for {log_bytes} bytes")
        return found

    def position_before(self, offset: Offset) -> int:
        """A position at or before the batch that contains the offset."""
        found = bisect_right(self.offsets, (offset, 1 << 62)) - 1
        return self.offsets[found][1] if found >= 0 else 0

    def offset_before_time(self, timestamp_ms: int) -> Offset:
        """No record before this offset has that time or a later one."""
        # An entry is the first to reach its time: all records before it are earlier.
        found = bisect_left(self.times, (timestamp_ms, -1)) - 1
        return Offset(self.times[found][1]) if found >= 0 else self.base

    def check_chunk(self, number: int, data: bytes | memoryview, *, name: str) -> None:
        """
        Raises:
            ArchiveCorrupt: the bytes differ from those that were archived.
        """
        begin = number * self.chunk_bytes
        size = min(self.chunk_bytes, self.log_bytes - begin)
        if len(data) != size:
            raise ArchiveCorrupt(f"{name}: {len(data)} of {size} bytes at byte {begin}")
        computed = crc32c(data)
        if computed != self.chunk_sums[number]:
            raise ArchiveCorrupt(
                f"{name}: checksum {computed:#010x} at byte {begin}, {self.chunk_sums[number]:#010x} was archived"
            )
