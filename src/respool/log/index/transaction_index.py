"""The `.txnindex` beside a segment: which transactions were aborted by a marker that lies in it. In Kafka's bytes.

```
 an entry, 34 bytes, big-endian; in the order of the markers
 0         2             10             18            26
 | version | producer id | first offset | last offset | last stable offset |
```
`first offset` is where the transaction began, maybe in an earlier segment; `last offset` is its marker's. No
transaction that a later entry names begins before this entry's `last stable offset`: so a search knows when to stop.

Most segments have none, and no file then. The entry is written before its marker and counts only after it, so readers
may look from other threads at any time. A file that a crash left behind is not believed: recovery makes it anew.
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
# How many entries are read at once.
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
    """Read whole entries.

    Raises:
        SegmentCorrupt: they are of another version, or end in the middle of one.
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
    """The owner's thread writes; others may search meanwhile."""

    __slots__ = ("_disk", "_file", "count")

    def __init__(self, disk: Disk, path: str, *, count: int = 0) -> None:
        self._disk = disk
        self._file = SharedFile(disk, path)
        # How many entries are there for readers.
        self.count = count

    @property
    def path(self) -> str:
        return self._file.path

    def find(
        self, begin: Offset, end: Offset, *, cached_only: bool = False, at_most: int | None = None
    ) -> tuple[list[AbortedTransaction], bool]:
        """Those that overlap [begin, end), and whether no later entry can, here or in a later segment.

        With `at_most` it looks for no more than so many, and says that there are none.

        Raises:
            SegmentCorrupt: an entry is damaged or missing.
            NotCached: `cached_only`, and something would have to come from the disk.
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
        """Write an entry that does not count yet; `add` or `undo` comes next.

        Raises:
            DiskFull, DiskFailed: it could not be written. All is as it was.
        """
        file = self._own_file()
        self._cut(file)
        file.append([encode_aborted([transaction])])

    def add(self) -> None:
        """What was prepared counts."""
        self.count += 1

    def undo(self) -> None:
        """Nothing was prepared."""
        self._cut(self._own_file())

    def truncate_to(self, offset: Offset) -> None:
        """Forget the markers at `offset` and behind it."""
        if self.count:
            self.count = self._first_from(offset, cached_only=False)
            self._cut(self._own_file())

    def replace(self, transactions: Sequence[AbortedTransaction]) -> None:
        """These and no others, in a new file; or no file, where there are none. It is durable when this returns."""
        self._file.release()
        self.count = len(transactions)
        if transactions:
            self._disk.replace_file(self.path, encode_aborted(transactions))
        else:
            self._disk.delete(self.path)

    def sync(self) -> None:
        """Put all entries on the disk. From any thread."""
        if self.count:
            # Whoever has it open: the owner may have let go of it since it wrote.
            self._file.to_read().sync()

    def keep_open(self) -> None:
        """Open it now, before it loses its name."""
        if self.count:
            self._own_file()

    def release(self) -> None:
        """Let go of the file."""
        self._file.release()

    def _entries_from(self, offset: Offset, *, cached_only: bool) -> Iterator[AbortedTransaction]:
        """Those whose marker lies at `offset` or behind it."""
        # Taken once: what the owner adds meanwhile is of a transaction that the reader does not reach.
        count = self.count
        at = self._first_from(offset, cached_only=cached_only)
        while at < count:
            entries = self._read(at, min(_READ_ENTRIES, count - at), cached_only=cached_only)
            yield from entries
            at += len(entries)

    def _first_from(self, offset: Offset, *, cached_only: bool) -> int:
        """By bisection, for a segment may have many."""
        low, high = 0, self.count
        # Most readers are near the end, so that comes first.
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
                raise OffsetOutOfRange(f"{self.path}: it was cut off while it was being read")
            raise SegmentCorrupt(f"{self.path}: entry {index} of {self.count} is missing")
        return decode_aborted(data, self.path)

    def _own_file(self) -> LogFile:
        file = self._file.own(create=not self.count)
        if file.size < self.count * ENTRY_BYTES:
            raise SegmentCorrupt(
                f"{self.path} has {file.size} bytes, there were {self.count} entries"
            )
        return file

    def _cut(self, file: LogFile) -> None:
        if file.size != self.count * ENTRY_BYTES:
            file.truncate(self.count * ENTRY_BYTES)
