"""Remembers what conditions say of batches, so that all readers of a view share one evaluation.

A batch is identified by what its leader and producer wrote: partition, offset, epoch, length and checksum. So nothing
has to be dropped when a log is truncated or compacted: another batch at the same offset has another identity.
"""

from collections import OrderedDict
from contextlib import AbstractContextManager
from typing import NamedTuple
from uuid import UUID

from respool.model.ids import Offset
from respool.records.batch import BatchHeader

# Memory of an entry beside the bytes of its batch.
OVERHEAD_BYTES = 500


class CacheScope(NamedTuple):
    topic_id: UUID
    partition: int
    # The canonical text of the condition.
    condition: str


class BatchKey(NamedTuple):
    scope: CacheScope
    base_offset: int
    # A rebuilt batch has it.
    leader_epoch: int
    # Covers all of the batch but its offset, epoch and length.
    crc: int
    length: int

    @classmethod
    def of(cls, scope: CacheScope, header: BatchHeader) -> "BatchKey":
        return cls(scope, header.base_offset, header.leader_epoch, header.crc, header.length)


class Verdict(NamedTuple):
    """Which records of a batch a reader is shown."""

    # The number of them; 0 for none.
    shown: int
    # The last one's offset; -1 if there is none.
    last_offset: Offset
    # The rebuilt batch; None if all records are shown, or none is.
    rebuilt: bytes | None = None
    # The batch's records could not be read.
    is_unreadable: bool = False
    # Its checksum is wrong: the disk has other bytes than were written.
    is_damaged: bool = False

    @property
    def is_whole(self) -> bool:
        """True if the stored batch is sent unchanged."""
        return self.shown > 0 and self.rebuilt is None


NOTHING_SHOWN = Verdict(0, Offset(-1))
UNREADABLE = Verdict(0, Offset(-1), is_unreadable=True)
DAMAGED = Verdict(0, Offset(-1), is_damaged=True)


class VerdictCache:
    """For any thread. The least recently used verdict is evicted first."""

    def __init__(self, *, bytes_max: int, guard: AbstractContextManager[object]) -> None:
        self._bytes_max = bytes_max
        self._guard = guard
        self._verdicts: OrderedDict[BatchKey, Verdict] = OrderedDict()
        self._bytes_held = 0

    @property
    def bytes_held(self) -> int:
        return self._bytes_held

    def get(self, key: BatchKey) -> Verdict | None:
        with self._guard:
            found = self._verdicts.get(key)
            if found is not None:
                self._verdicts.move_to_end(key)
            return found

    def put(self, key: BatchKey, verdict: Verdict) -> None:
        with self._guard:
            if key in self._verdicts or _cost(verdict) > self._bytes_max:
                return
            self._verdicts[key] = verdict
            self._bytes_held += _cost(verdict)
            while self._bytes_held > self._bytes_max:
                _, oldest = self._verdicts.popitem(last=False)
                self._bytes_held -= _cost(oldest)


def _cost(verdict: Verdict) -> int:
    return OVERHEAD_BYTES + len(verdict.rebuilt or b"")
