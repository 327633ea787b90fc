"""Places the replicas of new partitions: spread over racks, then over brokers, with an even number of leaders each.

The replicas of a partition are chosen one after the other. Each time it is the broker

1. in the rack with the fewest of the partition's replicas, and among those the rack with the fewest of the topic;
2. with the fewest replicas of the topic;
3. that shares the fewest partitions with the brokers chosen already, so that a dead broker's load goes to many others;
4. with the fewest replicas of all topics; and then the first from a starting point that differs from topic to topic.

So if racks are of equal size, brokers differ by at most one replica of a topic, and by one leader. The followers that
take over when a leader dies are spread over all brokers that share its partitions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from respool.cluster.leader_spread import even_heirs, even_leaders
from respool.cluster.view import ClusterView
from respool.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
)
from respool.model.ids import BrokerId


def place(
    racks: Mapping[BrokerId, str | None],
    *,
    partition_count: int,
    replication_factor: int,
    start: int = 0,
    held: Mapping[BrokerId, int] | None = None,
    of_topic: Sequence[tuple[BrokerId, ...]] = (),
) -> list[tuple[BrokerId, ...]]:
    """The replicas of each new partition, the preferred leader first.

    `racks` has the brokers that may get replicas; `held` the number of replicas that each has of all topics; `of_topic`
    the topic's existing partitions.

    Raises:
        InvalidPartitions: the partition count is below 1.
        InvalidReplicationFactor: it is below 1, or above the number of brokers.
    """
    if partition_count < 1:
        raise InvalidPartitions(f"a topic needs at least 1 partition, not {partition_count}")
    check_replication_factor(replication_factor, brokers=len(racks))
    if len(racks) == 1:
        return [tuple(racks)] * partition_count
    placer = _Placer(racks, start=start, held=held or {}, of_topic=of_topic)
    placed = [placer.place_one(replication_factor) for _ in range(partition_count)]
    found = dict(enumerate(placed))
    for better in (even_leaders, even_heirs):
        found |= better(found, among=racks)
    return list(found.values())


def check_replication_factor(factor: int, *, brokers: int) -> None:
    if factor < 1:
        raise InvalidReplicationFactor(f"a partition needs at least 1 replica, not {factor}")
    if factor > brokers:
        have = "there is 1 broker" if brokers == 1 else f"there are {brokers} brokers"
        raise InvalidReplicationFactor(
            f"replication factor {factor}: {have} that can take replicas now"
        )


def check_replicas(replicas: Sequence[BrokerId], view: ClusterView) -> None:
    """Check the replicas in a request. A broker that is down may be named, as in Kafka, but not an unknown one.

    Raises:
        InvalidReplicaAssignment: no replicas, a duplicate broker, or one that is unknown or leaving.
    """
    if not replicas:
        raise InvalidReplicaAssignment("no replicas are named")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"replicas {list(replicas)} name a broker twice")
    for one in replicas:
        if one not in view.brokers and one not in view.registry:
            raise InvalidReplicaAssignment(f"there is no broker {one}")
        if view.is_leaving(one):
            raise InvalidReplicaAssignment(f"broker {one} is drained, removed or dead")


def rack_crowding(replicas: Sequence[BrokerId], racks: Mapping[BrokerId, str | None]) -> int:
    """How unevenly replicas are spread over racks: smaller is better, for any number of racks."""
    return sum(count * count for count in Counter(racks.get(one) for one in replicas).values())


class _Placer:
    def __init__(
        self,
        racks: Mapping[BrokerId, str | None],
        *,
        start: int,
        held: Mapping[BrokerId, int],
        of_topic: Sequence[tuple[BrokerId, ...]],
    ) -> None:
        self._racks = racks
        self._held = held
        in_order = sorted(racks)
        first = start % len(in_order)
        self._turn = {one: turn for turn, one in enumerate(in_order[first:] + in_order[:first])}
        self._rack_size = Counter(racks.values())
        self._rack_load: Counter[str | None] = Counter()
        self._load: Counter[BrokerId] = Counter()
        self._leads: Counter[BrokerId] = Counter()
        self._shared: Counter[tuple[BrokerId, BrokerId]] = Counter()
        for replicas in of_topic:
            self._note(tuple(one for one in replicas if one in racks))

    def place_one(self, factor: int) -> tuple[BrokerId, ...]:
        chosen: list[BrokerId] = []
        while len(chosen) < factor:
            crowd = Counter(self._racks[one] for one in chosen)
            chosen.append(
                min(
                    (one for one in self._turn if one not in chosen),
                    key=lambda one: self._cost(one, chosen, crowd),
                )
            )
        leader = min(chosen, key=lambda one: (self._leads[one], self._turn[one]))
        replicas = (leader, *(one for one in chosen if one != leader))
        self._note(replicas)
        return replicas

    def _cost(
        self, broker: BrokerId, chosen: Sequence[BrokerId], crowd: Mapping[str | None, int]
    ) -> tuple[float, ...]:
        rack = self._racks[broker]
        return (
            crowd[rack],
            self._rack_load[rack] / self._rack_size[rack],
            self._load[broker],
            sum(self._shared[broker, other] for other in chosen),
            self._held.get(broker, 0),
            self._turn[broker],
        )

    def _note(self, replicas: tuple[BrokerId, ...]) -> None:
        if not replicas:
            return
        self._leads[replicas[0]] += 1
        for one in replicas:
            self._load[one] += 1
            self._rack_load[self._racks[one]] += 1
            for other in replicas:
                self._shared[one, other] += 1
