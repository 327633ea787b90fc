"""Partitioners: by key, round-robin, or a function of the caller.

The key is hashed with murmur2 as in the Java client, so that programs in any language choose the same partition for a
key. librdkafka supports it, but defaults to another hash. A message without a key may go to any partition; librdkafka
stays with one while a batch fills (sticky).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count

from respool.client.messages.errors import BadArgument

# key, value, number of partitions -> partition
Choose = Callable[[bytes | None, bytes | None, int], int]

# For messages without a partition librdkafka uses its own partitioner.
BY_LIBRARY = -1
LIBRARY_SETTING = {"partitioner": "murmur2_random"}


class Partitioner:
    def __init__(self, wish: object) -> None:
        self._choose: Choose | None = None
        self._turns: defaultdict[str, Iterator[int]] | None = None
        if callable(wish):
            self._choose = wish
        elif wish == "round-robin":
            self._turns = defaultdict(count)
        elif wish != "key":
            raise BadArgument(
                "partitioner is 'key', 'round-robin' or a function of key, value and number of partitions,"
                f" not {wish!r}"
            )

    @property
    def needs_count(self) -> bool:
        return self._choose is not None or self._turns is not None

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        if self._turns is not None:
            return next(self._turns[topic]) % partitions
        if self._choose is None:
            return BY_LIBRARY
        chosen = self._choose(key, value, partitions)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < partitions:
            raise BadArgument(
                f"the partitioner chose {chosen!r} for key {key!r} of topic {topic!r}, which has partitions"
                f" 0 to {partitions - 1}; nothing was sent"
            )
        return chosen
