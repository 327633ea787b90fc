"""The latest appended batches, kept in memory: fetches at the log end get the producers' bytes without a disk read.

```
 oldest                                           newest
 | a-0: 5..9 | b-3: 0..7 | a-0: 10..11 | b-3: 8..9 |         TailMemory: all logs, at most `bytes_max`
   a-0 holds 5..11, b-3 holds 0..9                           LogTail: one log, contiguous up to its end
```
Nothing is copied: a batch is kept as the leader's first bytes and the producer's remaining ones. A tail never differs
from its log: every change other than `LogParts.write` clears it.

`add` and `read` belong to the thread that owns the logs. `clear` may be called from any thread: it replaces the
batches.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from respool.log.read_batches import ReadSpec
from respool.model.ids import Offset

# Memory overhead per batch; without it, a million small batches would exceed the limit many times.
OVERHEAD_BYTES = 512
# Batches smaller than this are joined: copying one costs less than sending two more buffers.
BATCH_APART_BYTES_MIN = 32 * 1024


@dataclass(frozen=True, slots=True)
class TailBatches:
    """Whole consecutive batches in separate buffers."""

    buffers: list[bytes | memoryview]
    size: int
    # The offset after the last batch.
    end: Offset

    def __len__(self) -> int:
        """Size in bytes."""
        return self.size


class _Batch(NamedTuple):
    base_offset: Offset
    next_offset: Offset
    # Base offset to leader epoch, as the leader writes them, and the producer's bytes after them.
    stamp: bytes
    rest: memoryview
    size: int


class TailMemory:
    """The memory shared by the tails of all logs. The oldest batch is evicted first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_held = 0
        # Tail, generation of the tail, and cost per batch. A batch of a cleared tail is gone, but counts until it is
        # evicted.
        self._oldest: deque[tuple[LogTail, int, int]] = deque()

    def hold(self, tail: "LogTail", generation: int, size: int) -> None:
        """Account for a new batch of the tail; evict older ones, or this one if it alone exceeds the limit."""
        cost = size + OVERHEAD_BYTES
        self._oldest.append((tail, generation, cost))
        held = self._bytes_held + cost
        while held > self._bytes_max:
            tail, generation, cost = self._oldest.popleft()
            tail.drop_first(generation)
            held -= cost
        self._bytes_held = held


class LogTail:
    __slots__ = ("_memory", "_run")

    def __init__(self, memory: TailMemory) -> None:
        self._memory = memory
        # The generation, incremented by `clear`, and its batches. One tuple, because other threads may clear.
        self._run: tuple[int, deque[_Batch]] = 0, deque()

    def add(
        self, stamp: bytes, rest: memoryview, *, base_offset: Offset, next_offset: Offset, size: int
    ) -> None:
        """Add the batch just appended. Its bytes never change again."""
        generation, batches = self._run
        assert not batches or batches[-1].next_offset == base_offset
        batches.append(_Batch(base_offset, next_offset, stamp, rest, size))
        self._memory.hold(self, generation, size)

    def read(self, spec: ReadSpec) -> TailBatches | None:
        """As `LogReader.read`, whole batches only; None when the batch that holds the offset is not here."""
        _, batches = self._run
        offset, max_offset, bytes_max, at_least_one, _, _ = spec
        if not batches or not batches[0].base_offset <= offset < batches[-1].next_offset:
            return None
        index = bisect_right(batches, offset, key=_base_offset_of) - 1
        found: list[_Batch] = []
        size = 0
        end = offset
        while index < len(batches):
            batch = batches[index]
            if batch.next_offset > max_offset:
                break
            if size + batch.size > bytes_max and (found or not at_least_one):
                break
            found.append(batch)
            size += batch.size
            end = batch.next_offset
            index += 1
        return TailBatches(_buffers_of(found, size), size, end)

    def drop_first(self, generation: int) -> None:
        current, batches = self._run
        if current == generation:
            batches.popleft()

    def clear(self) -> None:
        """Discard the batches: the log no longer matches them, or soon will not."""
        generation, batches = self._run
        if batches:
            self._run = generation + 1, deque()


def _base_offset_of(batch: _Batch) -> Offset:
    return batch.base_offset


def _buffers_of(batches: list[_Batch], size: int) -> list[bytes | memoryview]:
    buffers = [buffer for batch in batches for buffer in (batch.stamp, batch.rest)]
    if size < len(batches) * BATCH_APART_BYTES_MIN:
        return [b"".join(buffers)]
    return buffers
