"""A hierarchical timing wheel on disk: entries by their due time, in bounded memory.

```
      now     +1 min         +2 h           +3 days          +60 days
       | queue  | minute      | hour         | day            | 30 days      buckets
       |        end[0]        end[1]         end[2]           end[3]
```
An entry is put into the file of the bucket it falls into; a bucket that comes near is opened: its entries move into
finer buckets, and those of a minute into the queue, which orders them. A minute with more entries than memory allows
is sorted in files. A small wheel is the queue alone.

Every entry that is due before `end[0]` is in the queue, before `end[1]` in the queue or the bucket of a minute, and so
on. The ends never go back while there are buckets. Buckets are opened in steps, so that the caller can do other work in
between.
"""

from typing import Any, NamedTuple

from respool.model.ids import Offset
from respool.timing.due_queue import DueQueue
from respool.timing.entries import due_of, dues_in
from respool.timing.wheel_files import WheelFiles

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
ENTRIES_MAX = 65_536
ENTRIES_MIN = 64

_SIZES_MS = (MINUTE_MS, HOUR_MS, DAY_MS, 30 * DAY_MS)
_PREFIXES = ("m", "h", "d", "p")
# How far ahead buckets of a level are opened.
_AHEAD_MS = (MINUTE_MS, 2 * HOUR_MS, 3 * DAY_MS, 60 * DAY_MS)
_NEVER = 2**63
_STEP_MIN = 1_024


class _Bucket(NamedTuple):
    begin_ms: int
    level: int

    @property
    def end_ms(self) -> int:
        return self.begin_ms + _SIZES_MS[self.level]

    def file_name(self, number: int) -> str:
        """Numbered: the file of an earlier bucket of the same time may still be there."""
        return f"{_PREFIXES[self.level]}-{self.begin_ms // _SIZES_MS[self.level]}-{number}"


class WheelCorrupt(Exception):
    """A file holds an entry of another time. The wheel must be built again."""


class Wheel:
    def __init__(self, files: WheelFiles, *, now_ms: int, entries_max: int = ENTRIES_MAX) -> None:
        self._files = files
        self._queue = DueQueue(files, max(entries_max, ENTRIES_MIN))
        self._now_ms = now_ms
        self._ends_ms = [_NEVER] * len(_SIZES_MS)
        # The buckets that are not open, and their files.
        self._buckets: dict[_Bucket, str] = {}
        self._numbered = 0
        # The bucket that is being opened, and how many of its entries have moved.
        self._opening: _Bucket | None = None
        self._moved = 0
        self._count = 0
        self._near_files = 0

    def __len__(self) -> int:
        """Entries that were added, and neither popped nor forgotten. Dropped ones count until they would be due."""
        # May be too low for a moment, if an entry was dropped before its replacement was reported.
        return max(0, self._count - self._queue.dropped)

    @property
    def in_memory(self) -> int:
        return self._queue.in_memory

    @property
    def entries_max(self) -> int:
        return self._queue.entries_max

    @entries_max.setter
    def entries_max(self, count: int) -> None:
        self._queue.entries_max = max(count, ENTRIES_MIN)

    def add(self, entry: bytes) -> None:
        self._count += 1
        self._place(entry, due_of(entry))

    def discard(self, offset: Offset) -> None:
        """Forget the entry of this offset, which was added and not popped."""
        self._count -= 1
        self._queue.discard(offset)

    def drop_below(self, offset: Offset, *, replaced: int = 0) -> None:
        """Forget the entries of offsets below this one, of which that many were replaced by others."""
        self._count -= replaced
        self._queue.drop_below(offset, counted_out=replaced)

    def advance(self, now_ms: int, *, step: int) -> bool:
        """Open buckets that are due soon, moving about `step` entries. Return True if there is more to move."""
        self._now_ms = now_ms
        left = max(step, _STEP_MIN)
        while left > 0:
            if self._opening is None and not self._begin_opening():
                self._raise_ends()
                self._shrink()
                return False
            left -= self._open_some(left)
        return self._opening is not None or self._next_to_open() is not None

    def pop_due(self, now_ms: int, count: int) -> list[bytes]:
        """Remove and return up to `count` entries that are due, in order. Entries in unopened buckets come later."""
        before_ms = min((one.begin_ms for one in self._buckets), default=_NEVER)
        popped: list[bytes] = []
        while len(popped) < count and (head := self._queue.head()) is not None:
            due_ms = due_of(head)
            if due_ms > now_ms or due_ms >= before_ms:
                break
            popped.append(self._queue.pop())
        self._count -= len(popped)
        return popped

    def next_due_ms(self) -> int | None:
        """When the next entry is due, or no later; None if there is none."""
        head = self._queue.head()
        found = [] if head is None else [due_of(head)]
        found += [one.begin_ms for one in self._buckets]
        return min(found, default=None)

    def wake_at_ms(self) -> int | None:
        """When to advance again at the latest; None if there is nothing to wait for."""
        head = self._queue.head()
        found = [] if head is None else [due_of(head)]
        found += [
            one.begin_ms - _AHEAD_MS[one.level] + (one.level > 0) * _SIZES_MS[one.level]
            for one in self._buckets
        ]
        return min(found, default=None)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def state(self, *, popped: list[bytes]) -> dict[str, Any]:
        """The state for a checkpoint, with popped entries as if they were still there. Writes the entries in memory to
        a file.
        """
        old = f"near-{self._near_files}"
        self._near_files += 1
        near = [*self._queue.entries_in_memory(), *popped]
        self._files.remove(old)
        if near:
            self._files.append(f"near-{self._near_files}", near)
        opening = self._opening
        return {
            "ends": self._ends_ms,
            "near": self._near_files,
            "count": self._count + len(popped),
            "numbered": self._numbered,
            "buckets": sorted([*one, name] for one, name in self._buckets.items()),
            "opening": None if opening is None else [*opening, self._moved],
            "queue": self._queue.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """
        Raises:
            KeyError, ValueError, TypeError: the state is malformed.
        """
        ends = [int(one) for one in state["ends"]]
        if len(ends) != len(_SIZES_MS):
            raise ValueError(f"{len(ends)} ends")
        self._ends_ms = ends
        self._near_files = int(state["near"])
        self._count = int(state["count"])
        self._numbered = int(state["numbered"])
        self._buckets = {
            _Bucket(int(begin), int(level)): str(name) for begin, level, name in state["buckets"]
        }
        if state["opening"] is not None:
            begin, level, self._moved = map(int, state["opening"])
            self._opening = _Bucket(begin, level)
        near = f"near-{self._near_files}"
        count = self._files.count(near)
        self._queue.restore(state["queue"], self._files.read(near, 0, count) if count else [])

    # -- placing -----------------------------------------------------------------------------------------------------

    def _place(self, entry: bytes, due_ms: int) -> None:
        ends = self._ends_ms
        if due_ms < ends[0]:
            self._queue.push(entry)
            if self._queue.is_full:
                self._make_room()
            return
        level = 0
        while level + 1 < len(ends) and due_ms >= ends[level + 1]:
            level += 1
        size = _SIZES_MS[level]
        bucket = _Bucket(due_ms // size * size, level)
        name = self._buckets.get(bucket)
        if name is None:
            self._numbered += 1
            name = self._buckets[bucket] = bucket.file_name(self._numbered)
        self._files.append(name, [entry])

    def _make_room(self) -> None:
        if self._ends_ms[0] == _NEVER:
            # No longer a small wheel.
            self._ends_ms = self._ends_now()
            for entry in self._queue.take_from(self._ends_ms[0]):
                self._place(entry, due_of(entry))
        if self._queue.is_full:
            self._queue.spill()

    def _ends_now(self) -> list[int]:
        """How far the levels should reach now."""
        return [
            (self._now_ms + ahead) // size * size + (size if level == 0 else 0)
            for level, (ahead, size) in enumerate(zip(_AHEAD_MS, _SIZES_MS, strict=True))
        ]

    def _raise_ends(self) -> None:
        """Let the levels reach as far as they should, up to the buckets that are not open."""
        if self._ends_ms[0] == _NEVER:
            return
        limit = _NEVER
        ends = self._ends_now()
        for level in reversed(range(len(ends))):
            first = min(
                (one.begin_ms for one in self._buckets if one.level == level), default=_NEVER
            )
            limit = min(limit, first, max(ends[level], self._ends_ms[level]))
            self._ends_ms[level] = limit

    def _shrink(self) -> None:
        """Become a small wheel again."""
        if self._ends_ms[0] == _NEVER or self._count > self._queue.entries_max // 4:
            return
        self._ends_ms = [_NEVER] * len(_SIZES_MS)
        buckets, self._buckets = self._buckets, {}
        for name in buckets.values():
            for entry in self._files.read(name, 0, self._files.count(name)):
                self._queue.push(entry)
            self._files.remove(name)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _next_to_open(self) -> _Bucket | None:
        """The earliest bucket that has come near."""
        ends = self._ends_now()
        return min((one for one in self._buckets if one.begin_ms < ends[one.level]), default=None)

    def _begin_opening(self) -> bool:
        bucket = self._next_to_open()
        if bucket is None:
            return False
        # From now on, entries of this bucket go to the finer buckets or the queue.
        self._ends_ms[bucket.level] = max(self._ends_ms[bucket.level], bucket.end_ms)
        self._opening, self._moved = bucket, 0
        return True

    def _open_some(self, count: int) -> int:
        """Move entries of the bucket that is being opened. Return how many."""
        bucket = self._opening
        assert bucket is not None
        name = self._buckets[bucket]
        left = self._files.count(name) - self._moved
        queue = self._queue
        fits = queue.in_memory + left <= queue.entries_max
        if bucket.level == 0 and not fits:
            # Sorted files of this size, whatever the step: there should be few of them.
            count = queue.entries_max // 2
        entries = self._files.read(name, self._moved, min(count, left))
        for due_ms in dues_in(entries):
            if not bucket.begin_ms <= due_ms < bucket.end_ms:
                raise WheelCorrupt(f"{name} has an entry that is due at {due_ms}")
        if bucket.level > 0:
            for entry in entries:
                self._place(entry, due_of(entry))
        elif fits:
            for entry in entries:
                queue.push(entry)
        else:
            queue.add_sorted_file(entries)
        self._moved += len(entries)
        if self._moved >= self._files.count(name):
            del self._buckets[bucket]
            self._files.remove(name)
            self._opening = None
        elif not entries:
            raise WheelCorrupt(f"{name} ends after {self._moved} entries")
        return max(1, len(entries))
