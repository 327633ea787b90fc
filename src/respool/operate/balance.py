"""Even out replicas and leaders over brokers and racks: plan the reassignments, then carry them out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from respool.cluster.families import is_follower_of_root
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.partition_requests import ElectionKind, elect_leaders, reassign
from respool.cluster.preferred import can_return
from respool.cluster.reassignment import is_moving
from respool.cluster.replica_balance import balanced_targets
from respool.cluster.view import ClusterView
from respool.model.ids import BrokerId, TopicPartition
from respool.operate.cluster_store import ClusterStore
from respool.operate.move_progress import OpenDisplay, wait_until_none_left


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMove:
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]

    @property
    def copies(self) -> int:
        """Replicas to copy. 0: only the order changes, which determines the preferred leader and failover."""
        return len(set(self.after).difference(self.before))


Moves = Mapping[TopicPartition, ReplicaMove]


class LeaderReturn(NamedTuple):
    """A partition that keeps its replicas and whose leadership returns to the preferred leader."""

    leader: BrokerId | None
    preferred: BrokerId


Returns = Mapping[TopicPartition, LeaderReturn]


class BalancePlan(NamedTuple):
    moves: Moves
    # Only partitions that are not in `moves`.
    returns: Returns
    # Brokers without a rack, if other brokers have one.
    without_rack: list[BrokerId]

    @property
    def copies(self) -> int:
        """Replicas to copy."""
        return sum(move.copies for move in self.moves.values())

    @property
    def reordered(self) -> int:
        """Partitions whose replicas only change order."""
        return sum(not move.copies for move in self.moves.values())


async def plan_balance(cluster: ClusterStore) -> BalancePlan:
    snapshot = await cluster.read()
    snapshot.check_exists()
    moves = plan_moves(snapshot.view)
    returns = plan_returns(snapshot.view)
    returns = {of: one for of, one in returns.items() if of not in moves}
    return BalancePlan(moves, returns, without_rack(snapshot.view))


async def begin_balance(cluster: ClusterStore, moves: Moves) -> None:
    """Write the reassignments; the controller carries them out."""
    await cluster.change(lambda view: begin(view, moves))


async def wait_until_balanced(cluster: ClusterStore, moves: Moves, display: OpenDisplay) -> None:
    await wait_until_none_left(
        cluster,
        lambda view: count_moving(view, moves),
        doing="balancing",
        display=display,
    )


async def return_leaders(cluster: ClusterStore) -> int:
    """Elect preferred leaders; return how many partitions changed their leader.

    The controller does the same periodically, but only if many partitions are not led by their preferred leader.
    """
    returned: set[TopicPartition] = set()

    def elect(view: ClusterView) -> list[GuardedWrite]:
        # Called again after a conflict; some of the writes may have succeeded by then.
        returned.update(plan_returns(view))
        return elect_leaders(view, ElectionKind.PREFERRED).writes

    await cluster.change(elect)
    return len(returned)


def without_rack(view: ClusterView) -> list[BrokerId]:
    """Brokers without a rack, if other brokers have one."""
    takers = list(view.candidates())
    rackless = [one for one in takers if not view.rack_of(one)]
    return rackless if len(rackless) < len(takers) else []


def plan_moves(view: ClusterView) -> Moves:
    moves = {}
    for of, after in balanced_targets(view).items():
        _, image = view.partition(of) or (None, None)
        assert image is not None
        moves[of] = ReplicaMove(before=image.target, after=after)
    return moves


def plan_returns(view: ClusterView) -> Returns:
    """Partitions that are led by another broker although the preferred leader is eligible."""
    return {
        TopicPartition(topic.name, number): LeaderReturn(image.leader, image.replicas[0])
        for topic, number, image in view.partitions()
        if image.leader != image.replicas[0]
        and can_return(image, view)
        and not is_follower_of_root(topic, number)
    }


def begin(view: ClusterView, moves: Moves) -> list[GuardedWrite]:
    """The writes that begin these moves; partitions that have changed since they were planned are skipped."""
    targets = {}
    for of, move in moves.items():
        found = view.partition(of)
        if found is not None and found[1].target == move.before and not is_moving(found[1]):
            targets[of] = move.after
    return reassign(view, targets).writes


def count_moving(view: ClusterView, moves: Moves) -> int:
    images = [found[1] for of in moves if (found := view.partition(of)) is not None]
    return sum(is_moving(image) for image in images)
