"""What was appended last, kept in memory: followers and readers at a log's end are sent the bytes that producers sent.

```
 oldest                                           newest
 | a-0: 5..9 | b-3: 0..7 | a-0: 10..11 | b-3: 8..9 |         TailMemory: over all logs, at most `bytes_max`
   a-0 holds 5..11, b-3 holds 0..9                           LogTail: one log's, without a gap, up to its end
```
Nothing is copied: a batch is held as its stamp and the rest of the bytes that came, and handed out so. A tail says
nothing but what the log would: whoever changes a log otherwise than by `LogParts.write` clears its tail.

`add` and `read` are for the thread that owns the logs. `clear` may come from any: it replaces, and changes nothing.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from respool.log.read_batches import ReadSpec
from respool.model.ids import Offset

# What holding a batch takes beside its bytes: else a million small ones would take far more than was allowed.
OVERHEAD_BYTES = 512
# Batches smaller than this are put together: a copy of one costs less than two more buffers to send.
BATCH_APART_BYTES_MIN = 32 * 1024


@dataclass(frozen=True, slots=True)
class TailBatches:
    """Whole batches, one behind the other, in buffers that lie apart."""

    buffers: list[bytes | memoryview]
    size: int
    # The offset after the last of them.
    end: Offset

    def __len__(self) -> int:
        """How many bytes."""
        return self.size


class _Batch(NamedTuple):
    base_offset: Offset
    next_offset: Offset
    # Its first bytes, as the leader writes them, and those that the producer sent behind them.
    stamp: bytes
    rest: memoryview
    size: int


class TailMemory:
    """The room that the tails of all logs share. The oldest batch goes first, whosever it is."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_held = 0
        # Of which tail, in which of its generations, and at what cost. One whose tail was cleared since is gone, and
        # counts until its turn comes.
        self._oldest: deque[tuple[LogTail, int, int]] = deque()

    def hold(self, tail: "LogTail", generation: int, size: int) -> None:
        """The tail has one more batch; let others go for it, or this one, if it is too large for all of the room."""
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
        # A new generation with each `clear`, and its batches. As one: other threads may clear.
        self._run: tuple[int, deque[_Batch]] = 0, deque()

    def add(
        self, stamp: bytes, rest: memoryview, *, base_offset: Offset, next_offset: Offset, size: int
    ) -> None:
        """The log has one more batch at its end, of bytes that nobody changes any more."""
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
        """The log is, or will be, another than these batches say."""
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
