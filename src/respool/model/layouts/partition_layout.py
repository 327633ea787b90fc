"""The layout of a topic's partitions after it was shrunk: which take records, and where the records for others go.

```
 6 partitions, shrunk to 3          0   1   2 | 3   4   5        3 to 5 are sealed: read, and no longer written
 a record for partition 5                   ^-----------+        goes to its heir, 5 mod 3
```
A client counts the partitions that it knows, so it still names sealed ones. If the new number divides the old one, a
key has one partition for all clients: `hash % 6 % 3 = hash % 3`.

A topic that was never shrunk has no layout.
"""

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple, Self

from respool.model.ids import LeaderEpoch, Offset

# Each number of active partitions is remembered, since producers' states may lie where it put their batches.
COUNTS_MAX = 64
FIRST_EPOCH = LeaderEpoch(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLayout:
    # Partitions 0 to active - 1 take records.
    active: int
    # Clients may name the partitions below: the largest number that the topic has had.
    named: int
    # Partitions with the same remainder by this number have the same replicas and the same leader: it divides every
    # number of active partitions there was, so they include whatever a producer's batches were appended to.
    family: int
    # Grows with every change of the number of active partitions; 0: only the replicas are being aligned.
    epoch: int
    # Every number of active partitions there was, without repetitions.
    counts: tuple[int, ...]
    # The number of active partitions before the last change; the present one, if there was none.
    previous: int
    # Partitions that are created again after they were retired begin with this leader epoch: a broker that was down
    # meanwhile still has the old log.
    first_epoch: LeaderEpoch = FIRST_EPOCH

    def __post_init__(self) -> None:
        assert 0 < self.active <= self.named, f"{self.active} of {self.named} partitions"
        assert all(count % self.family == 0 for count in self.counts), f"not one family: {self}"

    @classmethod
    def unchanged(cls, count: int) -> Self:
        """The layout of a topic that was never shrunk: all of its partitions take records."""
        return cls(
            active=count, named=count, family=count, epoch=0, counts=(count,), previous=count
        )

    def heir(self, partition: int) -> int:
        """The partition that takes the records for this one; itself, if it is active."""
        return partition if partition < self.active else partition % self.active

    def is_sealed(self, partition: int) -> bool:
        return partition >= self.active

    def root(self, partition: int) -> int:
        """The partition whose replicas and leader this one shares; itself, if it is the first of its family."""
        return partition % self.family

    def lineage(self, partition: int) -> tuple[int, ...]:
        """The partitions to which batches for this one may have been appended, itself first."""
        heirs = {partition % count for count in self.counts if partition >= count}
        return (partition, *sorted(heirs - {partition}))

    def heir_before(self, partition: int) -> int:
        """The heir before the last change."""
        return partition if partition < self.previous else partition % self.previous

    def sources(self, partition: int) -> set[int]:
        """The partitions that took, before the last change, records that this one takes now."""
        taken = (one for one in range(self.named) if self.heir(one) == partition)
        return {self.heir_before(one) for one in taken} - {partition}


def divisors(count: int) -> list[int]:
    """The numbers of partitions that keep every key in one partition, below `count`, largest first."""
    return [one for one in range(count - 1, 0, -1) if count % one == 0]


def common_family(layout: PartitionLayout, count: int) -> int:
    """The family once the topic has this number of active partitions, too."""
    return gcd(layout.family, count)


class ReaderHold(NamedTuple):
    """Readers are not shown this partition's newer records until they have read the keys' older ones elsewhere."""

    # They are shown the records below.
    end: Offset
    # The wall clock when it began, by its leader.
    since_ms: int
    # The partitions to be read first, and up to where.
    awaited: tuple[tuple[int, Offset], ...]


class Handover(NamedTuple):
    """What the partition's leader has noted about the last change of the layout that concerns this partition."""

    # The layout's epoch. Until it is noted, records for partitions whose heir has changed are held.
    epoch: int
    # Of a sealed partition: where its producers' batches end.
    sealed_end: Offset | None = None
    hold: ReaderHold | None = None
