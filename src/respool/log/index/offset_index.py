"""One segment's sparse index from offset to file position.

```
 an entry, 8 bytes, big-endian
 0          4          8
 | relative | position |      relative = last offset of the batch at `position` - the segment's base offset
```
Both fields strictly increase. As in Kafka, an entry has the last offset of its batch: so the batch that contains an
offset starts at or after the greatest entry not above that offset. The first batch has no entry.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from respool.log.index.entry_index import EntryIndex
from respool.log.index.index_file import IndexFile
from respool.model.ids import Offset

RELATIVE_OFFSET_MAX = 2**31 - 1

ENTRY_BYTES = 8
_ENTRY = Struct(">ii")
assert _ENTRY.size == ENTRY_BYTES
_RELATIVE = Struct(">i")


class OffsetEntry(NamedTuple):
    last_offset: Offset
    position: int


def decode_offset_entries(data: bytes, base_offset: Offset) -> Iterator[OffsetEntry]:
    """Whole entries of an index file, as they are; unused space at its end decodes to zeros."""
    for relative, position in _ENTRY.iter_unpack(data):
        yield OffsetEntry(Offset(base_offset + relative), position)


class OffsetIndex(EntryIndex):
    __slots__ = ("last_position",)

    entry_bytes = ENTRY_BYTES

    def __init__(self, file: IndexFile, base_offset: Offset) -> None:
        super().__init__(file, base_offset)
        # Position of the last entry's batch; 0 without entries.
        self.last_position = self._entry(file.count - 1).position if file.count else 0

    @property
    def is_full(self) -> bool:
        return self._file.count >= self._file.entries_max

    @property
    def last(self) -> OffsetEntry | None:
        return self._entry(self._file.count - 1) if self._file.count else None

    def lookup(self, offset: Offset) -> OffsetEntry | None:
        """Return the greatest entry not above `offset`; None if the search starts at the beginning of the file."""
        buffer = self._file.buffer
        wanted = offset - self._base_offset
        low = 0
        # After a resize in another thread, the buffer may be older than the count.
        high = min(self._file.count, len(buffer) // _ENTRY.size)
        while low < high:
            middle = (low + high) // 2
            if _RELATIVE.unpack_from(buffer, middle * 8)[0] <= wanted:
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        relative, position = _ENTRY.unpack_from(buffer, (low - 1) * 8)
        return OffsetEntry(Offset(self._base_offset + relative), position)

    def append(self, last_offset: Offset, position: int) -> None:
        """Index the batch at `position` by its last offset; call `file.make_room` first."""
        assert position > self.last_position, f"position {position} after {self.last_position}"
        file = self._file
        _ENTRY.pack_into(file.buffer, file.count * 8, last_offset - self._base_offset, position)
        # Last: a reader in another thread must find the complete entry.
        file.count += 1
        self.last_position = position

    def truncate_to(self, offset: Offset) -> None:
        """Remove the entries of batches that contain `offset` or come after it."""
        count = self._file.count
        while count and self._entry(count - 1).last_offset >= offset:
            count -= 1
        self._file.truncate(count)
        self.last_position = self._entry(count - 1).position if count else 0

    def is_plausible(self, *, log_bytes: int) -> bool:
        """True if the entries are plausible for a log file of that size. Checks the first and the last one only."""
        if not self._file.count:
            return True
        first, last = self._entry(0), self._entry(self._file.count - 1)
        return (
            self._base_offset <= first.last_offset <= last.last_offset
            and 0 < first.position <= last.position < log_bytes
        )

    def __iter__(self) -> Iterator[OffsetEntry]:
        return map(self._entry, range(self._file.count))

    def _entry(self, number: int) -> OffsetEntry:
        relative, position = _ENTRY.unpack_from(self._file.buffer, number * _ENTRY.size)
        return OffsetEntry(Offset(self._base_offset + relative), position)
