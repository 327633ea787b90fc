"""One segment's sparse index from timestamp to offset.

```
 an entry, 12 bytes, big-endian
 0           8          12
 | timestamp | relative |      relative = last offset of the batch - the segment's base offset
```
An entry means: up to here `timestamp` is the largest, and the batch with that last offset was the first to have it. So
all earlier batches have smaller timestamps. Timestamps strictly increase, and so do offsets, even if the records'
timestamps do not. The last entry of a finished segment is its largest timestamp.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from respool.log.index.entry_index import EntryIndex
from respool.log.index.index_file import IndexFile
from respool.model.ids import NO_TIMESTAMP, Offset

ENTRY_BYTES = 12
_ENTRY = Struct(">qi")
assert _ENTRY.size == ENTRY_BYTES
_TIMESTAMP = Struct(">q")


class TimeEntry(NamedTuple):
    timestamp: int
    last_offset: Offset


def decode_time_entries(data: bytes, base_offset: Offset) -> Iterator[TimeEntry]:
    """Whole entries of an index file, as they are; unused space at its end decodes to zeros."""
    for timestamp, relative in _ENTRY.iter_unpack(data):
        yield TimeEntry(timestamp, Offset(base_offset + relative))


class TimeIndex(EntryIndex):
    __slots__ = ("last",)

    entry_bytes = ENTRY_BYTES

    def __init__(self, file: IndexFile, base_offset: Offset) -> None:
        super().__init__(file, base_offset)
        self.last = self._last_entry()

    @property
    def is_full(self) -> bool:
        """True if only the entry reserved for the segment's end is left."""
        return self._file.count >= self._file.entries_max - 1

    def lookup(self, timestamp: int) -> Offset:
        """Return an offset such that every record before its batch is earlier than `timestamp`."""
        buffer = self._file.buffer
        low = 0
        # After a resize in another thread, the buffer may be older than the count.
        high = min(self._file.count, len(buffer) // _ENTRY.size)
        while low < high:
            middle = (low + high) // 2
            if _TIMESTAMP.unpack_from(buffer, middle * 12)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self._entry(buffer, low - 1).last_offset if low else self._base_offset

    def before(self, offset: Offset) -> TimeEntry:
        """Return the last entry whose batch ends before `offset`; without a timestamp if there is none."""
        buffer = self._file.buffer
        low = 0
        high = min(self._file.count, len(buffer) // _ENTRY.size)
        while low < high:
            middle = (low + high) // 2
            if self._entry(buffer, middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        if not low:
            return TimeEntry(NO_TIMESTAMP, self._base_offset)
        return self._entry(buffer, low - 1)

    def maybe_append(self, timestamp: int, last_offset: Offset) -> bool:
        """Add an entry if the largest timestamp has grown; call `file.make_room` first."""
        if timestamp <= self.last.timestamp:
            return False
        file = self._file
        relative = last_offset - self._base_offset
        _ENTRY.pack_into(file.buffer, file.count * 12, timestamp, relative)
        # Last: a reader in another thread must find the complete entry.
        file.count += 1
        self.last = TimeEntry(timestamp, last_offset)
        return True

    def truncate_to(self, offset: Offset) -> None:
        """Remove the entries of batches that contain `offset` or come after it."""
        count = self._file.count
        while count and self._entry(self._file.buffer, count - 1).last_offset >= offset:
            count -= 1
        self._file.truncate(count)
        self.last = self._last_entry()

    def is_plausible(self) -> bool:
        """True if the entries are plausible. Checks the first and the last one only."""
        if not self._file.count:
            return True
        first = self._entry(self._file.buffer, 0)
        return (
            NO_TIMESTAMP < first.timestamp <= self.last.timestamp
            and self._base_offset <= first.last_offset <= self.last.last_offset
            and (self._file.count == 1 or first.timestamp < self.last.timestamp)
        )

    def __iter__(self) -> Iterator[TimeEntry]:
        return (self._entry(self._file.buffer, number) for number in range(self._file.count))

    def _last_entry(self) -> TimeEntry:
        if not self._file.count:
            return TimeEntry(NO_TIMESTAMP, self._base_offset)
        return self._entry(self._file.buffer, self._file.count - 1)

    def _entry(self, buffer: memoryview, number: int) -> TimeEntry:
        timestamp, relative = _ENTRY.unpack_from(buffer, number * _ENTRY.size)
        return TimeEntry(timestamp, Offset(self._base_offset + relative))
