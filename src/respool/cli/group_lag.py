"""How far a group has read, per partition, and how far that is from the end. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from respool.cli.kafka import OffsetRange
    from respool.cli.kafka_groups import Group
    from respool.client.kafka.groups import Committed
    from respool.client.kafka.metadata import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    topic: str
    partition: int
    # The next offset the group reads; None when it never committed one.
    committed: int | None
    metadata: str = ""
    # What the partition holds; None when it is gone or nobody leads it.
    held: "OffsetRange | None"
    # The member that reads it now, as client id and host.
    owner: str | None = None

    @property
    def lag(self) -> int | None:
        """Messages there to be read. What retention took before it was read is not counted."""
        if self.committed is None or self.held is None:
            return None
        return max(0, self.held.end - max(self.committed, self.held.start))

    @property
    def lost(self) -> int:
        """Messages that retention took before the group read them."""
        if self.committed is None or self.held is None:
            return 0
        return max(0, self.held.start - self.committed)


def lags_of(
    group: "Group",
    committed: "Mapping[Place, Committed]",
    ranges: "Mapping[Place, OffsetRange]",
    *,
    places: "Iterable[Place]" = (),
) -> list[PartitionLag]:
    """One for each partition that the group has committed or that a member of it reads, and for each of `places`."""
    owners = group.owners
    lags = []
    for topic, number in sorted({*committed, *owners, *places}):
        place = committed.get((topic, number))
        owner = owners.get((topic, number))
        lags.append(
            PartitionLag(
                topic=topic,
                partition=number,
                committed=place.offset if place else None,
                # confluent-kafka commits a zero byte behind it, and does not show it either.
                metadata=place.metadata.rstrip("\0") if place else "",
                held=ranges.get((topic, number)),
                owner=f"{owner.client_id}@{owner.host}" if owner else None,
            )
        )
    return lags


def total_lag(lags: Iterable[PartitionLag]) -> int:
    return sum(each.lag or 0 for each in lags)


def spelled(places: "Iterable[Place]") -> str:
    """`rides 0,1,2  fares 0`."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(places):
        by_topic.setdefault(topic, []).append(str(number))
    return "  ".join(f"{topic} {','.join(numbers)}" for topic, numbers in by_topic.items())
