"""The work of `respool cluster balance`: show the moves that would even out replicas and leaders, and begin them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from respool.cli import cluster_store, output
from respool.cli.asking import confirm
from respool.cli.cluster_address import ClusterAddress
from respool.cli.cluster_status import spelled
from respool.cli.cluster_store import ClusterStore
from respool.cli.cluster_wait import wait_until_none_left
from respool.cluster.balance import balanced_targets
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.leader_requests import ElectionKind, elect_leaders
from respool.cluster.preferred import can_return
from respool.cluster.reassignment import is_moving
from respool.cluster.reassignment_requests import reassign
from respool.cluster.view import ClusterView
from respool.model.ids import BrokerId, TopicPartition

LISTED_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]

    @property
    def copies(self) -> int:
        """Replicas to be copied; 0: they change places, which decides who leads, and who takes over from whom."""
        return len(set(self.after).difference(self.before))


Moves = Mapping[TopicPartition, Move]


class Return(NamedTuple):
    """A partition stays where it is, and goes back to the broker that should lead it."""

    leader: BrokerId | None
    preferred: BrokerId


Returns = Mapping[TopicPartition, Return]


def balance(
    address: ClusterAddress, *, dry_run: bool = False, yes: bool, wait: bool = True, as_json: bool
) -> None:
    async def look(cluster: ClusterStore) -> tuple[Moves, Returns, list[BrokerId]]:
        sight = await cluster.look()
        sight.check_is_there()
        moves = plan(sight.view)
        returns = plan_returns(sight.view)
        returns = {of: one for of, one in returns.items() if of not in moves}
        return moves, returns, without_rack(sight.view)

    moves, returns, rackless = cluster_store.run(address, look)
    if rackless:
        output.note(
            f"without a rack: broker {spelled(rackless)}; until all have one, racks are not looked at",
            style="yellow",
        )
    _show(moves, returns, dry_run=dry_run, as_json=as_json)
    if dry_run or not (moves or returns):
        return
    if not yes:
        # Between two connections, for Ctrl-C does not reach a question within a loop of events.
        moved = output.counted(len(moves) + len(returns), "partition")
        confirm(f"Change {moved}?", why=f"this changes {moved}")
    seen_by = address.command("status")
    try:
        cluster_store.run(
            address, lambda cluster: _carry_out(cluster, moves, wait=wait, seen_by=seen_by)
        )
    except KeyboardInterrupt:
        output.note(f"what has begun goes on; look with: {seen_by}")
        raise


async def _carry_out(cluster: ClusterStore, moves: Moves, *, wait: bool, seen_by: str) -> None:
    """`seen_by` is the command that shows how it goes on."""
    await cluster.change(lambda view: begin(view, moves))
    if not wait:
        await _bring_leaders_back(cluster)
        if any(move.copies for move in moves.values()):
            output.note(f"they are on the way; look with: {seen_by}")
        return
    await wait_until_none_left(
        cluster,
        lambda view: count_on_the_way(view, moves),
        doing="balancing",
        unit="partitions moved",
    )
    # Only now: who is to lead may have had to copy everything first.
    await _bring_leaders_back(cluster)
    output.note("balanced")


async def _bring_leaders_back(cluster: ClusterStore) -> None:
    """The controller does so by itself only now and then, and only where much of it is elsewhere."""
    returned: set[TopicPartition] = set()

    def elect(view: ClusterView) -> list[GuardedWrite]:
        # Decided again where somebody was faster, and by then some may have been written.
        returned.update(plan_returns(view))
        return elect_leaders(view, ElectionKind.PREFERRED).writes

    await cluster.change(elect)
    if returned:
        output.note(f"{output.counted(len(returned), 'partition')} led as preferred again")


def without_rack(view: ClusterView) -> list[BrokerId]:
    """Those that name no rack, where others do."""
    takers = list(view.takers())
    rackless = [one for one in takers if not view.rack_of(one)]
    return rackless if len(rackless) < len(takers) else []


def plan(view: ClusterView) -> Moves:
    moves = {}
    for of, after in balanced_targets(view).items():
        _, image = view.partition(of) or (None, None)
        assert image is not None
        moves[of] = Move(before=image.target, after=after)
    return moves


def plan_returns(view: ClusterView) -> Returns:
    """The partitions that others lead than should, where those could."""
    return {
        TopicPartition(topic.name, number): Return(image.leader, image.replicas[0])
        for topic, number, image in view.partitions()
        if image.leader != image.replicas[0] and can_return(image, view)
    }


def begin(view: ClusterView, moves: Moves) -> list[GuardedWrite]:
    """The writes for what was shown; what somebody has changed meanwhile is left as it is."""
    targets = {}
    for of, move in moves.items():
        found = view.partition(of)
        if found is not None and found[1].target == move.before and not is_moving(found[1]):
            targets[of] = move.after
    return reassign(view, targets).writes


def count_on_the_way(view: ClusterView, moves: Moves) -> int:
    images = [found[1] for of in moves if (found := view.partition(of)) is not None]
    return sum(is_moving(image) for image in images)


def _show(moves: Moves, returns: Returns, *, dry_run: bool, as_json: bool) -> None:
    copies = sum(move.copies for move in moves.values())
    if as_json:
        output.print_json(
            {
                "dry_run": dry_run,
                "copies": copies,
                "moves": [
                    {
                        "topic": of.topic,
                        "partition": of.partition,
                        "replicas": list(move.before),
                        "target_replicas": list(move.after),
                    }
                    for of, move in moves.items()
                ],
                "leaders": [
                    {
                        "topic": of.topic,
                        "partition": of.partition,
                        "from": one.leader,
                        "to": one.preferred,
                    }
                    for of, one in returns.items()
                ],
            }
        )
        return
    rows = [
        (of.topic, of.partition, spelled(move.before), spelled(move.after))
        for of, move in moves.items()
    ]
    shown = rows[:LISTED_MAX] if output.is_terminal() else rows
    if shown:
        columns = ("topic", "partition", "from", "to")
        output.print_rows(output.Columns(*columns, numbers=("partition",)), shown)
    if len(rows) > len(shown):
        output.note(f"and {len(rows) - len(shown):,} more; --json has them all")
    if not rows and not returns:
        output.note("all is balanced; there is nothing to move")
        return
    reordered = sum(not move.copies for move in moves.values())
    told = [f"{output.counted(copies, 'replica')} to copy"] if copies else []
    if reordered:
        told.append(f"{output.counted(reordered, 'partition')} whose replicas only change places")
    if returns:
        told.append(f"{output.counted(len(returns), 'leader')} to bring back")
    output.note(", ".join(told) + ("; nothing was changed" if dry_run else ""))
