"""Finds keys that have messages in several partitions, by a scan in bounded memory. Pure.

A key has one partition as long as all producers use the same partitioner and the topic's partition count stays the
same. Otherwise the order of its messages is lost. For each key only the first partition is remembered; a key that
appears in a second one is kept with all its partitions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

# A tracked key takes about 150 bytes.
TRACKED_MAX = 500_000
LISTED_MAX = 1_000
# Keys can be as large as messages.
LISTED_BYTES_MAX = 16 * 1024 * 1024
# Longer keys are remembered by their digest.
SHORT_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitKey:
    """A key with messages in several partitions, and the partitions that the two common partitioners choose for it."""

    key: bytes
    partitions: tuple[int, ...]
    murmur2_partition: int
    # None for the empty key: librdkafka chooses a partition at random.
    crc32_partition: int | None

    @property
    def is_by_both(self) -> bool:
        """True if its messages are exactly where murmur2 and CRC32 place it."""
        return set(self.partitions) == {self.murmur2_partition, self.crc32_partition}


class KeyPlacement:
    """Counts keys and their partitions, message by message."""

    def __init__(
        self,
        *,
        tracked_max: int = TRACKED_MAX,
        listed_max: int = LISTED_MAX,
        listed_bytes_max: int = LISTED_BYTES_MAX,
    ) -> None:
        self._tracked_max = tracked_max
        self._listed_max = listed_max
        self._listed_bytes_left = listed_bytes_max
        # The first partition of each key, by key or digest.
        self._first: dict[bytes, int] = {}
        self._split: dict[bytes, set[int]] = {}
        # Split keys that did not fit into `_split`, so that each is counted once.
        self._unlisted: set[bytes] = set()
        self.messages = 0
        self.with_key = 0
        # Messages whose key was not compared, because the maximum number of keys was tracked already.
        self.untracked = 0

    def on_message(self, key: bytes | None, partition: int) -> None:
        self.messages += 1
        if key is None:
            return
        self.with_key += 1
        name = key if len(key) <= SHORT_KEY_BYTES else blake2b(key, digest_size=48).digest()
        first = self._first.get(name)
        if first is None:
            if len(self._first) < self._tracked_max:
                self._first[name] = partition
            else:
                self.untracked += 1
        elif key in self._split:
            self._split[key].add(partition)
        elif first != partition:
            self._on_split(key, name, {first, partition})

    def _on_split(self, key: bytes, name: bytes, partitions: set[int]) -> None:
        has_room = len(self._split) < self._listed_max and len(key) <= self._listed_bytes_left
        if has_room and name not in self._unlisted:
            self._split[key] = partitions
            self._listed_bytes_left -= len(key)
        else:
            self._unlisted.add(name)

    @property
    def keys(self) -> int:
        """The number of different keys that were compared."""
        return len(self._first)

    @property
    def split_count(self) -> int:
        return len(self._split) + len(self._unlisted)

    def split_keys(
        self, partition_count: int, murmur2_partition: Callable[[bytes, int], int]
    ) -> list[SplitKey]:
        """Up to `listed_max` of the keys that have several partitions, sorted by key."""
        return [
            SplitKey(
                key=key,
                partitions=tuple(sorted(partitions)),
                murmur2_partition=murmur2_partition(key, partition_count),
                crc32_partition=crc32(key) % partition_count if key else None,
            )
            for key, partitions in sorted(self._split.items())
        ]


def divide_budget(available: Mapping[int, int], budget: int | None) -> dict[int, int]:
    """Messages to scan in each partition: equal shares, where short partitions leave the rest to the others."""
    if budget is None:
        return dict(available)
    chosen: dict[int, int] = {}
    left = budget
    by_size = sorted(available, key=lambda number: (available[number], number))
    for at, number in enumerate(by_size):
        chosen[number] = min(available[number], left // (len(by_size) - at))
        left -= chosen[number]
    return chosen
