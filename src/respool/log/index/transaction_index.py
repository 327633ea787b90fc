"""The `.txnindex` file of a segment: the transactions aborted by markers in that segment, in Kafka's format.

```
 an entry, 34 bytes, big-endian; in the order of the markers
 0         2             10             18            26
 | version | producer id | first offset | last offset | last stable offset |
```
`first offset` is the transaction's first, maybe in an earlier segment; `last offset` is that of its marker. No
transaction of a later entry starts before this entry's `last stable offset`, which tells a search when to stop.

Most segments have no aborted transactions and no such file. The entry is written before its marker and becomes visible
after it, so readers in other threads may search at any time. After a crash the file is rebuilt.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from respool.log.shared_file import SharedFile
from respool.model.errors import OffsetOutOfRange, SegmentCorrupt
from respool.model.ids import Offset
from respool.ports.disk import Disk, LogFile

ENTRY_BYTES = 34
_VERSION = 0
_ENTRY = Struct(">hqqqq")
assert _ENTRY.size == ENTRY_BYTES
# Entries per read.
_READ_ENTRIES = 120


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset

    def overlaps(self, begin: Offset, end: Offset) -> bool:
        return self.first_offset < end and self.last_offset >= begin


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join([_ENTRY.pack(_VERSION, *one) for one in transactions])


def decode_aborted(data: bytes | memoryview, path: str) -> list[AbortedTransaction]:
    """Decode whole entries.

    Raises:
        SegmentCorrupt: they have another version, or the last one is incomplete.
    """
    if len(data) % ENTRY_BYTES:
        raise SegmentCorrupt(f"{path}: {len(data)} bytes are not whole entries of {ENTRY_BYTES}")
    found = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise SegmentCorrupt(f"{path}: version {version}, only {_VERSION} is known")
        found.append(AbortedTransaction(producer_id, Offset(first), Offset(last), Offset(stable)))
    return found


class TransactionIndex:
    """The owner's thread writes; others may search at the same time."""

    __slots__ = ("_disk", "_file", "count")

    def __init__(self, disk: Disk, path: str, *, count: int = 0) -> None:
        self._disk = disk
        self._file = SharedFile(disk, path)
        # The number of entries visible to readers.
        self.count = count

    @property
    def path(self) -> str:
        return self._file.path

    def find(
        self, begin: Offset, end: Offset, *, cached_only: bool = False, at_most: int | None = None
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the entries that overlap [begin, end), and True if no later entry can overlap, here or in later
        segments.

        With `at_most`, stop after that number of entries and return True.

        Raises:
            SegmentCorrupt: an entry is damaged or missing.
            NotCached: `cached_only`, and bytes would have to come from the disk.
        """
        found: list[AbortedTransaction] = []
        for one in self._entries_from(begin, cached_only=cached_only):
            if one.overlaps(begin, end):
                found.append(one)
            if one.last_stable_offset >= end or len(found) == at_most:
                return found, True
        return found, False

    def all(self) -> list[AbortedTransaction]:
        return self._read(0, self.count) if self.count else []

    def prepare(self, transaction: AbortedTransaction) -> None:
        """Write an entry that is not visible yet; call `add` or `undo` next.

        Raises:
            DiskFull, DiskFailed: the write failed. Nothing has changed.
        """
        file = self._own_file()
        self._truncate_file(file)
        file.append([encode_aborted([transaction])])

    def add(self) -> None:
        """Make the prepared entry visible."""
        self.count += 1

    def undo(self) -> None:
        """Discard the prepared entry."""
        self._truncate_file(self._own_file())

    def truncate_to(self, offset: Offset) -> None:
        """Remove the markers at `offset` and after it."""
        if self.count:
            self.count = self._first_from(offset, cached_only=False)
            self._truncate_file(self._own_file())

    def replace(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Write a new file with exactly these entries, or none if there are no entries. Durable when this returns."""
        self._file.release()
        self.count = len(transactions)
        if transactions:
            self._disk.replace_file(self.path, encode_aborted(transactions))
        else:
            self._disk.delete(self.path)

    def sync(self) -> None:
        """Make all entries durable. From any thread."""
        if self.count:
            # Any open handle: the owner may have closed its own since the write.
            self._file.to_read().sync()

    def keep_open(self) -> None:
        """Open it now, before it is renamed."""
        if self.count:
            self._own_file()

    def release(self) -> None:
        """Close the file."""
        self._file.release()

    def _entries_from(self, offset: Offset, *, cached_only: bool) -> Iterator[AbortedTransaction]:
        """Yield the entries whose marker is at `offset` or after it."""
        # Taken once: entries that the owner adds meanwhile are beyond what this reader reads.
        count = self.count
        at = self._first_from(offset, cached_only=cached_only)
        while at < count:
            entries = self._read(at, min(_READ_ENTRIES, count - at), cached_only=cached_only)
            yield from entries
            at += len(entries)

    def _first_from(self, offset: Offset, *, cached_only: bool) -> int:
        """Bisect: a segment may have many entries."""
        low, high = 0, self.count
        # Most readers are near the end, so check there first.
        middle = high - 1
        while low < high:
            if self._read(middle, 1, cached_only=cached_only)[0].last_offset < offset:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def _read(
        self, index: int, count: int, *, cached_only: bool = False
    ) -> list[AbortedTransaction]:
        size = count * ENTRY_BYTES
        data = self._file.to_read().read(index * ENTRY_BYTES, size, cached_only=cached_only)
        if len(data) != size:
            if index + count > self.count:
                raise OffsetOutOfRange(f"{self.path}: it was truncated during the read")
            raise SegmentCorrupt(f"{self.path}: entry {index} of {self.count} is missing")
        return decode_aborted(data, self.path)

    def _own_file(self) -> LogFile:
        file = self._file.own(create=not self.count)
        if file.size < self.count * ENTRY_BYTES:
            raise SegmentCorrupt(
                f"{self.path} has {file.size} bytes, there were {self.count} entries"
            )
        return file

    def _truncate_file(self, file: LogFile) -> None:
        if file.size != self.count * ENTRY_BYTES:
            file.truncate(self.count * ENTRY_BYTES)
