"""Balances replicas and leaders over brokers with few moves, for `respool cluster balance`.

1. Partitions that could be spread better over racks are moved.
2. Racks with too many replicas for their number of brokers move some to other racks.
3. Within each rack, a broker moves replicas to one with at least two fewer, beginning with its topic of largest
   surplus; and a broker with two more replicas of a topic than another swaps one of them for another topic's.
4. The order of replicas evens out preferred leaders, over all topics and within each; then the followers behind them.

No step undoes an earlier one, and each decreases a measure that no step increases, so balancing terminates; and a
balanced cluster gives no moves. Leaving brokers, partitions in reassignment, and families of partitions in topics that
were shrunk stay as they are.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from respool.cluster.families import has_family
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.leader_spread import even_heirs, even_leaders, uneven_pairs
from respool.cluster.partition_draft import PartitionDraft
from respool.cluster.placement import rack_crowding
from respool.cluster.reassignment import is_moving, retarget
from respool.cluster.view import ClusterView
from respool.model.ids import BrokerId, TopicPartition


def balance(view: ClusterView) -> list[GuardedWrite]:
    """All moves to begin. `copy_limit.py` limits how many are copied at a time."""
    targets = balanced_targets(view)
    draft = PartitionDraft(view)
    for topic, number, image in view.partitions():
        target = targets.get(TopicPartition(topic.name, number))
        if target is not None:
            draft.change(
                topic, number, retarget(image, target), f"to replicas {list(target)}, for balance"
            )
    return draft.writes()


def balanced_targets(view: ClusterView) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The partitions to change, with their new replicas."""
    plan = _Plan(view)
    if not plan.racks:
        return {}
    for even_out in (plan.spread_over_racks, plan.even_racks):
        while even_out():
            pass
    # The second step does not change the brokers' replica counts.
    while plan.even_brokers() or plan.even_topics():
        pass
    among, fixed = plan.racks, plan.fixed
    plan.replicas |= even_leaders(
        plan.replicas, among=among, fixed=fixed, group_of=lambda of: of.topic
    )
    plan.replicas |= even_heirs(plan.replicas, among=among, fixed=fixed)
    return {of: now for of, now in plan.replicas.items() if now != plan.before[of]}


class _Plan:
    """The planned replicas of every partition."""

    def __init__(self, view: ClusterView) -> None:
        self.racks = view.candidates()
        holders = {one for _, _, image in view.partitions() for one in image.target}
        self._rack_of = view.racks_of(holders) | self.racks
        self.before: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        self.replicas: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        self.fixed: set[TopicPartition] = set()
        # By broker and topic: the planned partitions, in order.
        self._held: dict[BrokerId, dict[str, dict[TopicPartition, None]]] = {
            one: defaultdict(dict) for one in self.racks
        }
        self._topic_size: Counter[str] = Counter()
        self.load: Counter[BrokerId] = Counter(dict.fromkeys(self.racks, 0))
        for topic, number, image in view.partitions():
            of = TopicPartition(topic.name, number)
            self.before[of] = self.replicas[of] = image.target
            if is_moving(image) or image.leader is None or has_family(topic, number):
                self.fixed.add(of)
            for one in image.target:
                self._topic_size[of.topic] += 1
                if one in self.racks:
                    self._held[one][of.topic][of] = None
                    self.load[one] += 1

    def spread_over_racks(self) -> bool:
        """Move replicas of each partition to racks that have fewer of them."""
        has_moved = False
        rack_count = len(set(self.racks.values()))
        for of, replicas in self.before.items():
            if of in self.fixed or _is_spread(replicas, self._rack_of, rack_count):
                continue
            while self._spread_one(of):
                has_moved = True
        return has_moved

    def even_racks(self) -> bool:
        size = Counter(self.racks.values())
        load = Counter(dict.fromkeys(size, 0))
        for broker, count in self.load.items():
            load[self.racks[broker]] += count
        for giver, taker in permutations(sorted(size, key=lambda one: (-load[one], str(one))), 2):
            # The gain is the decrease of the sum of load * load / size.
            if (2 * load[giver] - 1) * size[taker] <= (2 * load[taker] + 1) * size[giver]:
                continue
            move = self._best_between_racks(giver, taker)
            if move is not None:
                self._move(*move)
                return True
        return False

    def even_brokers(self) -> bool:
        for rack in sorted(set(self.racks.values()), key=str):
            brokers = self._by_load(rack)
            for giver in reversed(brokers):
                for taker in brokers:
                    if self.load[giver] - self.load[taker] < 2:
                        break
                    of = next(self._candidates(giver, taker), None)
                    if of is not None:
                        self._move(of, giver, taker)
                        return True
        return False

    def even_topics(self) -> bool:
        moved = 0
        for rack in sorted(set(self.racks.values()), key=str):
            brokers = self._by_load(rack)
            moved += sum(self._even_topic(one, brokers) for one in self._topic_size)
        return moved > 0

    def _even_topic(self, topic: str, brokers: Sequence[BrokerId]) -> bool:
        have = {one: len(self._held[one].get(topic, ())) for one in brokers}
        return any(self._exchange(topic, giver, taker) for giver, taker in uneven_pairs(have))

    def _exchange(self, topic: str, giver: BrokerId, taker: BrokerId) -> bool:
        going = next(self._could_go(topic, giver, taker), None)
        if going is None:
            return False
        if self.load[giver] <= self.load[taker]:
            coming = next(
                (
                    of
                    for of in self._candidates(taker, giver)
                    if of.topic != topic and self._excess(of.topic, taker, giver) > 0
                ),
                None,
            )
            if coming is None:
                return False
            self._move(coming, taker, giver)
        self._move(going, giver, taker)
        return True

    def _spread_one(self, of: TopicPartition) -> bool:
        now = self.replicas[of]
        crowding = rack_crowding(now, self._rack_of)
        options = [
            (rack_crowding((*rest, taker), self._rack_of), self.load[taker], taker, giver)
            for giver in now
            if giver in self.racks
            for rest in [[one for one in now if one != giver]]
            for taker in self.racks
            if taker not in now
        ]
        best = min(options, default=None)
        if best is None or best[0] >= crowding:
            return False
        self._move(of, best[3], best[2])
        return True

    def _best_between_racks(
        self, giver_rack: str | None, taker_rack: str | None
    ) -> tuple[TopicPartition, BrokerId, BrokerId] | None:
        for giver in reversed(self._by_load(giver_rack)):
            for taker in self._by_load(taker_rack):
                for of in self._candidates(giver, taker):
                    moved = [*(one for one in self.replicas[of] if one != giver), taker]
                    before = rack_crowding(self.replicas[of], self._rack_of)
                    if rack_crowding(moved, self._rack_of) <= before:
                        return of, giver, taker
        return None

    def _candidates(self, giver: BrokerId, taker: BrokerId) -> Iterator[TopicPartition]:
        """Partitions that could move from one broker to the other, topics with the largest relative surplus first.

        Relative to the topic's size: otherwise large topics would move first, and small ones would stay uneven.
        """
        held = self._held[giver]
        for topic in sorted(
            held, key=lambda one: (-self._excess(one, giver, taker) / self._topic_size[one], one)
        ):
            yield from self._could_go(topic, giver, taker)

    def _could_go(self, topic: str, giver: BrokerId, taker: BrokerId) -> Iterator[TopicPartition]:
        for of in self._held[giver].get(topic, ()):
            if taker not in self.replicas[of] and of not in self.fixed:
                yield of

    def _excess(self, topic: str, giver: BrokerId, taker: BrokerId) -> int:
        """How many more replicas of a topic one broker has than the other."""
        return len(self._held[giver].get(topic, ())) - len(self._held[taker].get(topic, ()))

    def _by_load(self, rack: str | None) -> list[BrokerId]:
        return sorted(
            (one for one in self.racks if self.racks[one] == rack),
            key=lambda one: (self.load[one], one),
        )

    def _move(self, of: TopicPartition, giver: BrokerId, taker: BrokerId) -> None:
        self.replicas[of] = tuple(taker if one == giver else one for one in self.replicas[of])
        del self._held[giver][of.topic][of]
        self._held[taker][of.topic][of] = None
        self.load[giver] -= 1
        self.load[taker] += 1


def _is_spread(
    replicas: tuple[BrokerId, ...], racks: Mapping[BrokerId, str | None], rack_count: int
) -> bool:
    """True if no other distribution over this number of racks is better."""
    each, more = divmod(len(replicas), rack_count)
    return rack_crowding(replicas, racks) <= rack_count * each * each + more * (2 * each + 1)
