"""Preferred leaders, spread evenly over brokers: the order of replicas is changed, nothing is copied.

A broker that should lead too many hands one over to another replica of it; and if that one then has too many, it hands
on one of its own: a chain, which ends at a broker with at least two fewer. When no chain is left, no other order of
the same replicas is more even.
"""

from collections import Counter, deque
from collections.abc import Collection, Hashable, Mapping
from typing import Generic, TypeVar

from respool.model.ids import BrokerId

Name = TypeVar("Name", bound=Hashable)


def even_leaders(
    replicas_of: Mapping[Name, tuple[BrokerId, ...]],
    *,
    among: Collection[BrokerId],
    fixed: Collection[Name] = (),
) -> dict[Name, tuple[BrokerId, ...]]:
    """Those partitions whose replicas should be in another order, with that order.

    Only brokers `among` are given leaders or relieved of them. Partitions that are `fixed` count and stay.
    """
    if not among:
        return {}
    spread = _Spread(replicas_of, among, fixed)
    while spread.hand_over():
        pass
    return spread.changed()


class _Spread(Generic[Name]):
    def __init__(
        self,
        replicas_of: Mapping[Name, tuple[BrokerId, ...]],
        among: Collection[BrokerId],
        fixed: Collection[Name],
    ) -> None:
        self._before: Mapping[Name, tuple[BrokerId, ...]] = replicas_of
        self._now = dict(replicas_of)
        # In order, so that the same partitions always give the same spread.
        self._led: dict[BrokerId, dict[Name, None]] = {one: {} for one in sorted(among)}
        self._count: Counter[BrokerId] = Counter(dict.fromkeys(self._led, 0))
        for name, replicas in replicas_of.items():
            if replicas[0] in self._led:
                self._count[replicas[0]] += 1
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

    def changed(self) -> dict[Name, tuple[BrokerId, ...]]:
        return {name: now for name, now in self._now.items() if now != self._before[name]}

    def _chain_from(self, giver: BrokerId) -> list[tuple[Name, BrokerId]]:
        """The shortest chain of hand-overs to a broker with at least two fewer; empty when there is none."""
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
        self._count[replicas[0]] -= 1
        self._count[taker] += 1
        self._now[name] = (taker, *(one for one in replicas if one != taker))
