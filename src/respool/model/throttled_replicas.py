"""The throttled replicas of a topic, in the format of Kafka's tools (KIP-73)."""

import re
from dataclasses import dataclass
from typing import Self

from respool.model.errors import InvalidConfig
from respool.model.ids import BrokerId

ALL = "*"
# The text is stored with the topic in the metadata store, whose limit is 1.5 MB per write.
TEXT_LENGTH_MAX = 512 * 1024

_PLACE = re.compile(r"([0-9]{1,10}):([0-9]{1,10})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Pairs of partition and broker; or all replicas."""

    places: frozenset[tuple[int, BrokerId]] = frozenset()
    is_all: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Raises:
            InvalidConfig: the text is neither a list of pairs nor '*'.
        """
        if len(text) > TEXT_LENGTH_MAX:
            raise InvalidConfig(
                f"{len(text)} characters, limit {TEXT_LENGTH_MAX}; '*' stands for all"
            )
        if text.strip() == ALL:
            return cls(is_all=True)
        places = set()
        for word in filter(None, map(str.strip, text.split(","))):
            place = _PLACE.fullmatch(word)
            if place is None:
                raise InvalidConfig(
                    f"{word[:40]!r} is not 'partition:broker'; '*' stands for all, and alone"
                )
            places.add((int(place[1]), BrokerId(int(place[2]))))
        return cls(frozenset(places))

    def has(self, partition: int, broker: BrokerId) -> bool:
        return self.is_all or (partition, broker) in self.places

    def __bool__(self) -> bool:
        """True if any replica may be throttled."""
        return self.is_all or bool(self.places)

    def __str__(self) -> str:
        if self.is_all:
            return ALL
        return ",".join(f"{partition}:{broker}" for partition, broker in sorted(self.places))
