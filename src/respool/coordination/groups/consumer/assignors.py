"""The server-side assignors (KIP-848): `uniform` and `range`.

Both assign every partition of every topic to exactly one of the members subscribed to it.

- `uniform` evens out the number of partitions per member, and moves as few partitions as possible.
- `range` gives each member a range of every topic, in the order of the members' names. Members with the same
  subscription get the same partition numbers of topics with the same partition count, so such topics can be joined.
  It does not minimise moves.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import ceil, floor
from typing import NamedTuple, TypeAlias

from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, PartitionSet
from respool.model.ids import TopicId


class Subscriber(NamedTuple):
    """An assignor's input for one member."""

    topic_ids: frozenset[TopicId]
    # Its last target assignment. May contain partitions that are deleted or no longer assigned to it.
    assigned: PartitionSet = NO_PARTITIONS
    instance_id: str | None = None


Subscribers: TypeAlias = Mapping[str, Subscriber]
PartitionCounts: TypeAlias = Mapping[TopicId, int]
Shares: TypeAlias = dict[str, PartitionSet]
Assignor: TypeAlias = Callable[[Subscribers, PartitionCounts], Shares]


def assign_range(members: Subscribers, partition_counts: PartitionCounts) -> Shares:
    """Assign each subscriber a range of each topic; the first subscribers get one more partition each if any remain."""
    shares: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in members}
    # Static members come first: they keep their names over restarts, and so their positions.
    in_order = sorted(members, key=lambda name: _static_first(name, members[name].instance_id))
    for topic_id, subscribers in _by_topic(members, in_order, partition_counts).items():
        quota, extra = divmod(partition_counts[topic_id], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + quota + (place < extra)
            if start < end:
                shares[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(shares)


def assign_uniform(members: Subscribers, partition_counts: PartitionCounts) -> Shares:
    """Even out the partition counts as far as the subscriptions allow, with few moves."""
    sharing = _Sharing(members, partition_counts)
    if len({member.topic_ids for member in members.values()}) <= 1:
        sharing.reduce_to_quota()
    sharing.deal_the_rest()
    sharing.even_out()
    return sharing.shares()


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


class _Move(NamedTuple):
    giver: str
    topic_id: TopicId
    taker: str


class _Sharing:
    """Builds a uniform assignment."""

    def __init__(self, members: Subscribers, partition_counts: PartitionCounts) -> None:
        in_order = sorted(members)
        self._subscribers = _by_topic(members, in_order, partition_counts)
        self._held: dict[str, dict[TopicId, set[int]]] = {member_id: {} for member_id in in_order}
        self._load = dict.fromkeys(in_order, 0)
        self._free = {
            topic_id: set(range(partition_counts[topic_id])) for topic_id in self._subscribers
        }
        for member_id in in_order:
            self._keep_what_is_valid(member_id, members[member_id])

    def reduce_to_quota(self) -> None:
        """All members subscribe to the same topics: free the partitions above each member's equal share.

        While a remainder is left, the members with the most partitions keep one of it each.
        """
        total = sum(self._load.values()) + sum(len(free) for free in self._free.values())
        quota, extra = divmod(total, len(self._load)) if self._load else (0, 0)
        for member_id in sorted(self._load, key=lambda name: (-self._load[name], name)):
            allowed = quota
            if self._load[member_id] > quota and extra:
                allowed += 1
                extra -= 1
            while self._load[member_id] > allowed:
                topic_id = self._fullest_topic(member_id)
                self._free[topic_id].add(self._take(member_id, topic_id))

    def deal_the_rest(self) -> None:
        """Assign each free partition to the subscriber with the fewest; topics with few subscribers first."""
        by_choice = sorted(self._free, key=lambda topic: (len(self._subscribers[topic]), topic))
        for topic_id in by_choice:
            subscribers = self._subscribers[topic_id]
            for partition in sorted(self._free[topic_id]):
                # On a tie the first by name wins, so that equal input gives equal output.
                self._give(min(subscribers, key=self._load.__getitem__), topic_id, partition)
        self._free.clear()

    def even_out(self) -> None:
        """Move partitions from the fullest member to others with fewer, until no move helps.

        A partition can move only to a subscriber of its topic, so the path to a member with fewer partitions may lead
        through others, which take one partition and pass on another. If no path leads to a member with at least two
        partitions fewer, neither the fullest member nor those reachable from it can be evened out further.
        """
        remaining = set(self._load)
        average = sum(self._load.values()) / max(1, len(self._load))
        while remaining:
            fullest = max(remaining, key=lambda name: (self._load[name], name))
            way, reached = self._way_to_emptier(fullest, remaining)
            if not way:
                remaining -= reached
                continue
            # Move several at once where that is safe; a move beyond the average might have to be undone.
            wanted = min(
                self._load[fullest] - ceil(average), floor(average) - self._load[way[0].taker]
            )
            wanted = min(wanted, *(len(self._held[move.giver][move.topic_id]) for move in way))
            for giver, topic_id, taker in way:
                for _ in range(max(1, wanted)):
                    self._give(taker, topic_id, self._take(giver, topic_id))

    def shares(self) -> Shares:
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}
            for member_id, held in self._held.items()
        }

    def _way_to_emptier(self, start: str, remaining: set[str]) -> tuple[list[_Move], set[str]]:
        """The shortest path to a member with at least two partitions fewer; or no path, and all reachable members."""
        enough = self._load[start] - 2
        came_by: dict[str, _Move] = {}
        reached = {start}
        handed_on: set[TopicId] = set()
        waiting = deque([start])
        while waiting:
            giver = waiting.popleft()
            for topic_id in self._held[giver]:
                # Every owner of a partition of the topic could pass it on, so visiting the topic once is enough.
                if topic_id in handed_on:
                    continue
                handed_on.add(topic_id)
                for taker in self._subscribers[topic_id]:
                    if taker in reached or taker not in remaining:
                        continue
                    reached.add(taker)
                    came_by[taker] = _Move(giver, topic_id, taker)
                    if self._load[taker] <= enough:
                        return _walk_back(came_by, taker), reached
                    waiting.append(taker)
        return [], reached

    def _keep_what_is_valid(self, member_id: str, member: Subscriber) -> None:
        for topic_id, partitions in member.assigned.items():
            # It may have been assigned to another member since, or deleted.
            if topic_id in member.topic_ids and topic_id in self._free:
                for partition in sorted(partitions & self._free[topic_id]):
                    self._free[topic_id].remove(partition)
                    self._give(member_id, topic_id, partition)

    def _fullest_topic(self, member_id: str) -> TopicId:
        held = self._held[member_id]
        return max(held, key=lambda topic_id: (len(held[topic_id]), topic_id))

    def _give(self, member_id: str, topic_id: TopicId, partition: int) -> None:
        self._held[member_id].setdefault(topic_id, set()).add(partition)
        self._load[member_id] += 1

    def _take(self, member_id: str, topic_id: TopicId) -> int:
        held = self._held[member_id][topic_id]
        partition = max(held)
        held.remove(partition)
        if not held:
            del self._held[member_id][topic_id]
        self._load[member_id] -= 1
        return partition


def _walk_back(came_by: Mapping[str, _Move], end: str) -> list[_Move]:
    """The moves on the path to `end`, last first, so that no member passes on a partition it has just received."""
    moves = []
    while end in came_by:
        moves.append(came_by[end])
        end = came_by[end].giver
    return moves


def _by_topic(
    members: Subscribers, in_order: Iterable[str], partition_counts: PartitionCounts
) -> dict[TopicId, list[str]]:
    """The subscribers of each existing topic, in the given order."""
    subscribers: dict[TopicId, list[str]] = {}
    for member_id in in_order:
        for topic_id in members[member_id].topic_ids:
            if topic_id in partition_counts:
                subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers


def _static_first(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (instance_id is None, member_id if instance_id is None else instance_id)
