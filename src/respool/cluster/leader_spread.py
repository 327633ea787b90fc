"""Spreads preferred leaders evenly over brokers by changing the order of replicas; nothing is copied.

A broker that is the preferred leader of too many partitions hands one over to another of the partition's replicas; if
that broker then has too many, it hands over one of its own. Such a chain ends at a broker with at least two fewer. If
no chain is left, no other order of the same replicas is more even.

Partitions may be in groups, for example by topic: otherwise few brokers might lead a busy topic, compensated by an
idle one. A broker that leads two more of a group than another swaps one of them for a partition of another group.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from respool.model.ids import BrokerId

Name = TypeVar("Name", bound=Hashable)


def even_leaders(
    replicas_of: Mapping[Name, tuple[BrokerId, ...]],
    *,
    among: Collection[BrokerId],
    fixed: Collection[Name] = (),
    group_of: Callable[[Name], Hashable] = lambda _: None,
) -> dict[Name, tuple[BrokerId, ...]]:
    """The partitions whose replicas should be reordered, with their new order.

    Only brokers `among` gain or lose leaders. `fixed` partitions count, but do not change. The total is spread as
    evenly as possible first, and then each group.
    """
    if not among:
        return {}
    spread = _Spread(replicas_of, among, fixed, group_of)
    # The first step evens out the total; the second evens out each group and keeps the total. So the loop terminates.
    while spread.hand_over() or spread.even_groups():
        pass
    return spread.changed()


def even_heirs(
    replicas_of: Mapping[Name, tuple[BrokerId, ...]],
    *,
    among: Collection[BrokerId],
    fixed: Collection[Name] = (),
) -> dict[Name, tuple[BrokerId, ...]]:
    """The partitions whose followers should be reordered, with their new order.

    The first follower leads when the leader dies: a dead broker's leaderships should be spread over many brokers.
    """
    tails: dict[BrokerId, dict[Name, tuple[BrokerId, ...]]] = {}
    for name, (leader, *followers) in replicas_of.items():
        if followers:
            tails.setdefault(leader, {})[name] = tuple(followers)
    return {
        name: (leader, *followers)
        for leader, of_leader in tails.items()
        for name, followers in even_leaders(of_leader, among=among, fixed=fixed).items()
    }


def uneven_pairs(counts: Mapping[BrokerId, int]) -> Iterator[tuple[BrokerId, BrokerId]]:
    """Pairs of brokers where the first leads at least two more than the second, most uneven first."""
    few = sorted(counts, key=lambda one: (counts[one], one))
    for giver in reversed(few):
        if counts[giver] - counts[few[0]] < 2:
            return
        for taker in few:
            if counts[giver] - counts[taker] < 2:
                break
            yield giver, taker


class _Spread(Generic[Name]):
    def __init__(
        self,
        replicas_of: Mapping[Name, tuple[BrokerId, ...]],
        among: Collection[BrokerId],
        fixed: Collection[Name],
        group_of: Callable[[Name], Hashable],
    ) -> None:
        self._group_of = group_of
        self._before: Mapping[Name, tuple[BrokerId, ...]] = replicas_of
        self._now = dict(replicas_of)
        # Sorted, so that the same partitions always give the same result.
        self._led: dict[BrokerId, dict[Name, None]] = {one: {} for one in sorted(among)}
        self._count: Counter[BrokerId] = Counter(dict.fromkeys(self._led, 0))
        # The same for each group.
        self._of_group: dict[Hashable, Counter[BrokerId]] = {}
        for name, replicas in replicas_of.items():
            of_group = self._of_group.setdefault(group_of(name), Counter())
            if replicas[0] in self._led:
                self._count[replicas[0]] += 1
                of_group[replicas[0]] += 1
                if name not in fixed:
                    self._led[replicas[0]][name] = None

    def hand_over(self) -> bool:
        for broker in sorted(self._led, key=lambda one: (-self._count[one], one)):
            chain = self._chain_from(broker)
            if chain:
                for name, taker in chain:
                    self._give(name, taker)
                return True
        return False

    def even_groups(self) -> bool:
        """Even out the groups; return True if a leader moved to a broker with at least two fewer of a group."""
        # With a single group, evening out the total is enough.
        return len(self._of_group) > 1 and sum(map(self._even_group, self._of_group)) > 0

    def _even_group(self, group: Hashable) -> bool:
        leads = self._of_group[group]
        return any(
            self._exchange(group, giver, taker)
            for giver, taker in uneven_pairs({one: leads[one] for one in self._led})
        )

    def _exchange(self, group: Hashable, giver: BrokerId, taker: BrokerId) -> bool:
        going = next(
            (
                name
                for name in self._led[giver]
                if self._group_of(name) == group and taker in self._now[name]
            ),
            None,
        )
        if going is None:
            return False
        if self._count[giver] <= self._count[taker]:
            coming = self._one_in_return(group, taker, giver)
            if coming is None:
                return False
            self._give(coming, giver)
        self._give(going, taker)
        return True

    def _one_in_return(self, group: Hashable, giver: BrokerId, taker: BrokerId) -> Name | None:
        """A partition of another group that can be swapped in return without making its group less even."""
        for name in self._led[giver]:
            other = self._group_of(name)
            leads = self._of_group[other]
            if other != group and leads[giver] > leads[taker] and taker in self._now[name]:
                return name
        return None

    def changed(self) -> dict[Name, tuple[BrokerId, ...]]:
        return {name: now for name, now in self._now.items() if now != self._before[name]}

    def _chain_from(self, giver: BrokerId) -> list[tuple[Name, BrokerId]]:
        """The shortest chain of hand-overs to a broker with at least two fewer; empty if there is none."""
        few = self._count[giver] - 2
        if few < min(self._count.values()):
            return []
        reached_by: dict[BrokerId, tuple[Name, BrokerId] | None] = {giver: None}
        queue = deque([giver])
        while queue:
            broker = queue.popleft()
            for name in self._led[broker]:
                for taker in self._now[name][1:]:
                    if taker in reached_by or taker not in self._led:
                        continue
                    reached_by[taker] = (name, broker)
                    if self._count[taker] <= few:
                        return self._way_back(taker, reached_by)
                    queue.append(taker)
        return []

    @staticmethod
    def _way_back(
        taker: BrokerId, reached_by: Mapping[BrokerId, tuple[Name, BrokerId] | None]
    ) -> list[tuple[Name, BrokerId]]:
        chain = []
        step = reached_by[taker]
        while step is not None:
            name, giver = step
            chain.append((name, taker))
            taker, step = giver, reached_by[giver]
        return chain

    def _give(self, name: Name, taker: BrokerId) -> None:
        replicas = self._now[name]
        del self._led[replicas[0]][name]
        self._led[taker][name] = None
        for counts in (self._count, self._of_group[self._group_of(name)]):
            counts[replicas[0]] -= 1
            counts[taker] += 1
        self._now[name] = (taker, *(one for one in replicas if one != taker))
