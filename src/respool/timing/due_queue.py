"""The entries that are due soon, in order: a heap in memory, and sorted files for entries that do not fit."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from respool.model.ids import Offset
from respool.timing.entries import bytes_due_before, offset_of
from respool.timing.wheel_files import WheelFiles

_READ_MIN, _READ_MAX = 16, 4_096


class _SortedFile:
    """A sorted file that is read from its beginning, a piece at a time."""

    def __init__(self, files: WheelFiles, name: str, begin: int = 0) -> None:
        self.name = name
        # The first entry that was not taken yet.
        self.begin = begin
        self._files = files
        # Reversed: the next one is last.
        self._read: list[bytes] = []

    @property
    def left(self) -> int:
        return self._files.count(self.name) - self.begin

    def head(self, read_count: int) -> bytes | None:
        if not self._read and self.left > 0:
            self._read = self._files.read(self.name, self.begin, read_count)[::-1]
        return self._read[-1] if self._read else None

    def take(self) -> None:
        self._read.pop()
        self.begin += 1


class DueQueue:
    """Ordered by (due, offset). A discarded entry is skipped when it comes first."""

    def __init__(self, files: WheelFiles, entries_max: int) -> None:
        self.entries_max = entries_max
        # Entries that were passed over because of their offset alone, while the wheel still counted them.
        self.dropped = 0
        self._files = files
        self._heap: list[bytes] = []
        # The sorted files by their first entries: a heap, too.
        self._heads: list[tuple[bytes, int]] = []
        self._sorted: dict[int, _SortedFile] = {}
        self._numbered = 0
        # How often each was discarded: a schedule has one entry after another.
        self._discarded: dict[Offset, int] = {}
        self._stale_below = Offset(0)
        self._counted_out = 0

    @property
    def in_memory(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        return len(self._heap) > self.entries_max

    def push(self, entry: bytes) -> None:
        heappush(self._heap, entry)

    def discard(self, offset: Offset) -> None:
        """Pass over the entry of this offset, which has to be here or come later."""
        if offset >= self._stale_below:
            self._discarded[offset] = self._discarded.get(offset, 0) + 1

    def drop_below(self, offset: Offset, *, counted_out: int) -> None:
        """Pass over all entries of offsets below this one; that many of them the wheel no longer counts."""
        self._counted_out += counted_out
        if offset <= self._stale_below:
            return
        self._stale_below = offset
        # Discarded entries are not counted.
        self._counted_out += sum(count for one, count in self._discarded.items() if one < offset)
        self._discarded = {one: count for one, count in self._discarded.items() if one >= offset}

    def head(self) -> bytes | None:
        while (entry := self._first()) is not None:
            offset = offset_of(entry)
            if offset < self._stale_below:
                if self._counted_out:
                    self._counted_out -= 1
                else:
                    self.dropped += 1
            elif offset in self._discarded:
                self._discarded[offset] -= 1
                if not self._discarded[offset]:
                    del self._discarded[offset]
            else:
                return entry
            self._take()
        return None

    def pop(self) -> bytes:
        entry = self.head()
        assert entry is not None, "pop from an empty queue"
        self._take()
        return entry

    def add_sorted_file(self, entries: Iterable[bytes]) -> None:
        """Take entries that do not fit into memory."""
        self._numbered += 1
        name = f"run-{self._numbered}"
        self._files.append(name, sorted(entries))
        self._open(self._numbered, _SortedFile(self._files, name))

    def spill(self) -> None:
        """Move the later three quarters of the memory into a sorted file."""
        self._heap.sort()
        kept = self.entries_max // 4
        later = self._heap[kept:]
        del self._heap[kept:]
        self.add_sorted_file(later)

    def take_from(self, due_ms: int) -> list[bytes]:
        """Remove and return the entries in memory that are due at that time or later."""
        limit = bytes_due_before(due_ms)
        taken = [entry for entry in self._heap if entry >= limit]
        self._heap = [entry for entry in self._heap if entry < limit]
        heapify(self._heap)
        return taken

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def entries_in_memory(self) -> list[bytes]:
        return list(self._heap)

    def state(self) -> dict[str, Any]:
        return {
            "discarded": sorted(self._discarded.items()),
            "stale_below": self._stale_below,
            "dropped": self.dropped,
            "counted_out": self._counted_out,
            "numbered": self._numbered,
            "sorted": [[number, one.name, one.begin] for number, one in self._sorted.items()],
        }

    def restore(self, state: dict[str, Any], entries: list[bytes]) -> None:
        """
        Raises:
            KeyError, ValueError, TypeError: the state is malformed.
        """
        self._heap = entries
        heapify(self._heap)
        self._discarded = {Offset(int(one)): int(count) for one, count in state["discarded"]}
        self._stale_below = Offset(int(state["stale_below"]))
        self.dropped = int(state["dropped"])
        self._counted_out = int(state["counted_out"])
        self._numbered = int(state["numbered"])
        for number, name, begin in state["sorted"]:
            self._open(int(number), _SortedFile(self._files, str(name), int(begin)))

    # ----------------------------------------------------------------------------------------------------------------

    def _open(self, number: int, file: _SortedFile) -> None:
        self._sorted[number] = file
        head = file.head(self._read_count)
        if head is None:
            self._close(number)
        else:
            heappush(self._heads, (head, number))

    def _first(self) -> bytes | None:
        if not self._heads:
            return self._heap[0] if self._heap else None
        if not self._heap:
            return self._heads[0][0]
        return min(self._heap[0], self._heads[0][0])

    def _take(self) -> None:
        """Remove the first entry."""
        if not self._heads or (self._heap and self._heap[0] <= self._heads[0][0]):
            heappop(self._heap)
            return
        number = self._heads[0][1]
        file = self._sorted[number]
        file.take()
        head = file.head(self._read_count)
        if head is None:
            heappop(self._heads)
            self._close(number)
        else:
            heapreplace(self._heads, (head, number))

    def _close(self, number: int) -> None:
        self._files.remove(self._sorted.pop(number).name)

    @property
    def _read_count(self) -> int:
        share = self.entries_max // (4 * len(self._sorted) + 1)
        return max(_READ_MIN, min(share, _READ_MAX))
