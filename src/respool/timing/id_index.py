"""Finds the records with an id, by a hash of the id: the newest in memory, older ones in sorted files.

```
 0      8             16            24
 | hash | first offset | offset now |        an entry; big-endian, as in the wheel
```
A hash only finds candidates: the caller compares ids as bytes. Hashes are spread evenly, so a file is searched by
interpolation. Files of similar size are merged, in steps, so that there are few.
"""

from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from heapq import merge
from itertools import islice
from struct import Struct
from typing import Any, NamedTuple

from respool.model.ids import Offset
from respool.timing.wheel_files import WheelFiles

MEMORY_MAX = 8_192
_READ_COUNT = 64
_MERGE_READ_COUNT = 2_048
_HASHES = 2**64
_ENTRY = Struct(">QQQ")


class IdAt(NamedTuple):
    """A record with an id: the offset at which it was written, and the one at which it lies now."""

    first: Offset
    offset: Offset


def hash_id(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


class IdIndex:
    def __init__(self, files: WheelFiles) -> None:
        self.memory_max = MEMORY_MAX
        self._files = files
        self._memory: dict[int, list[IdAt]] = {}
        self._in_memory = 0
        # Sorted files, oldest first.
        self._sorted: list[str] = []
        self._numbered = 0
        self._merging: _Merge | None = None

    def add(self, hashed: int, at: IdAt) -> None:
        self._memory.setdefault(hashed, []).append(at)
        self._in_memory += 1
        if self._in_memory >= self.memory_max:
            self._write()

    def newer(self, hashed: int, first: Offset) -> list[IdAt]:
        """The records with this hash that were written after the one at `first`, newest first."""
        found = [one for one in self._memory.get(hashed, ()) if one.first > first]
        for name in self._sorted:
            found += self._find(name, hashed, Offset(first + 1))
        return sorted(set(found), reverse=True)

    def all(self, hashed: int) -> list[IdAt]:
        return self.newer(hashed, Offset(-1))

    def merge_some(self, step: int, *, log_start: Offset) -> bool:
        """Merge about `step` entries of files, dropping entries below the log start. True: there is more."""
        if self._merging is None:
            pair = self._to_merge()
            if pair is None:
                return False
            self._merging = _Merge(self._files, pair, self._next_name(), log_start)
        if self._merging.run(step):
            return True
        done, self._merging = self._merging, None
        at = self._sorted.index(done.pair[0])
        self._sorted[at : at + 2] = [done.name]
        for name in done.pair:
            self._files.remove(name)
        return self._to_merge() is not None

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        # Checkpoints must stay small, so the entries in memory become a file.
        if self._memory:
            self._write()
        return {"sorted": self._sorted, "numbered": self._numbered}

    def restore(self, state: dict[str, Any]) -> None:
        """
        Raises:
            KeyError, ValueError, TypeError: the state is malformed.
        """
        self._sorted = [str(name) for name in state["sorted"]]
        self._numbered = int(state["numbered"])
        # A merge that was interrupted starts again.
        for name in set(self._files.names("ids-")) - set(self._sorted):
            self._files.remove(name)

    # ----------------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        entries = sorted(
            _ENTRY.pack(hashed, *at) for hashed, found in self._memory.items() for at in found
        )
        name = self._next_name()
        self._files.append(name, entries)
        self._sorted.append(name)
        self._memory.clear()
        self._in_memory = 0

    def _next_name(self) -> str:
        self._numbered += 1
        return f"ids-{self._numbered}"

    def _to_merge(self) -> tuple[str, str] | None:
        """The newest adjacent pair of which the older one is not much larger."""
        for older, newer in reversed(list(zip(self._sorted, self._sorted[1:], strict=False))):
            if self._files.count(older) <= 2 * self._files.count(newer):
                return older, newer
        return None

    def _find(self, name: str, hashed: int, first: Offset) -> list[IdAt]:
        found: list[IdAt] = []
        at = _lower_bound(self._files, name, _ENTRY.pack(hashed, first, 0))
        while True:
            entries = self._files.read(name, at, _READ_COUNT)
            for entry in entries:
                other, first_offset, offset = _ENTRY.unpack(entry)
                if other != hashed:
                    return found
                found.append(IdAt(first_offset, offset))
            at += len(entries)
            if not entries:
                return found


class _Merge:
    """Two sorted files -> one."""

    def __init__(
        self, files: WheelFiles, pair: tuple[str, str], name: str, log_start: Offset
    ) -> None:
        self.pair = pair
        self.name = name
        self._files = files
        self._log_start = log_start
        self._entries = merge(*(_entries(files, one) for one in pair))

    def run(self, step: int) -> bool:
        """Return True if there is more."""
        entries = list(islice(self._entries, step))
        kept = [one for one in entries if _ENTRY.unpack(one)[2] >= self._log_start]
        self._files.append(self.name, kept)
        return bool(entries)


def _entries(files: WheelFiles, name: str) -> Iterator[bytes]:
    at = 0
    while entries := files.read(name, at, _MERGE_READ_COUNT):
        yield from entries
        at += len(entries)


def _lower_bound(files: WheelFiles, name: str, key: bytes) -> int:
    """The position of the first entry that is not below the key."""
    wanted = int.from_bytes(key[:8], "big")
    low, high = 0, files.count(name)
    low_hash, high_hash = 0, _HASHES
    is_guess = True
    while low < high:
        # Every other step halves, so that hashes that are not spread evenly cost little more.
        if is_guess and low_hash <= wanted < high_hash:
            middle = low + (wanted - low_hash) * (high - low) // (high_hash - low_hash)
        else:
            middle = (low + high) // 2
        is_guess = not is_guess
        begin = max(low, min(middle - _READ_COUNT // 2, high - 1))
        entries = files.read(name, begin, min(_READ_COUNT, high - begin))
        at = bisect_left(entries, key)
        if at == 0:
            if begin == low:
                return low
            high, high_hash = begin, int.from_bytes(entries[0][:8], "big")
        elif at == len(entries):
            low, low_hash = begin + at, int.from_bytes(entries[-1][:8], "big")
        else:
            return begin + at
    return low
