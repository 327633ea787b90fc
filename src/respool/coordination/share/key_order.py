"""Order by key: a record is delivered only when the ones of its key before it are finished. Pure.

Keys are known by hashes of 64 bits: a collision delays a record, and reorders none.
"""

from collections import deque
from collections.abc import Mapping

from respool.coordination.share.in_flight import HELD, InFlight


class KeyOrder:
    def __init__(self, window: InFlight) -> None:
        self._window = window
        # The key's hash of each record that is, or was, unfinished; and the records of each key, in order.
        self._keys: dict[int, int] = {}
        self._records: dict[int, deque[int]] = {}

    def __len__(self) -> int:
        """The number of records whose keys are in memory."""
        return len(self._keys)

    def add(self, first: int, last: int, keys: Mapping[int, int]) -> None:
        """Records came into the window, after all others."""
        for offset in range(first, last + 1):
            key = keys.get(offset)
            if key is not None:
                self._keys[offset] = key
                self._records.setdefault(key, deque()).append(offset)

    def may_acquire(self, offset: int, member: str, inflight_max: int) -> bool:
        """True if no unfinished record of the key precedes it, or the member holds those that do, which are few."""
        key = self._keys.get(offset)
        if key is None:
            return True
        records = self._records[key]
        while self._is_finished(records[0]):
            del self._keys[records.popleft()]
        before = 0
        for one in records:
            if one == offset:
                return before < inflight_max
            if self._is_finished(one):
                continue
            before += 1
            run = self._window.run_at(one)
            is_held = run.state == HELD and run.lock is not None and run.lock.member == member
            if before >= inflight_max or not is_held:
                return False
        raise AssertionError(f"record {offset} is not among those of its key")

    def forget_finished(self) -> None:
        """Release the memory of keys that nobody asks for."""
        for key, records in list(self._records.items()):
            while records and self._is_finished(records[0]):
                del self._keys[records.popleft()]
            if not records:
                del self._records[key]

    def _is_finished(self, offset: int) -> bool:
        return offset < self._window.start or self._window.run_at(offset).is_finished
