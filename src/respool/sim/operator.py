"""Who runs the cluster of a simulated run, and changes it while it works: moves replicas, drains brokers, grows topics.

It writes to the metadata store as the command line does: guarded, and it does not mind being refused.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random

from respool.cluster import broker_requests
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.leader_requests import ElectionKind, elect_leaders
from respool.cluster.reassignment_requests import reassign
from respool.cluster.view import ClusterView
from respool.model.errors import RequestError
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.metadata_store import GuardFailed
from respool.sim.cluster_sight import ClusterSight
from respool.sim.machine import Machine
from respool.sim.machine_troubles import Deed
from respool.sim.store import SimStore

# Somebody else is faster now and then.
TRIES_MAX = 5

Decide = Callable[[ClusterView], Sequence[GuardedWrite]]


class Operator:
    def __init__(self, *, store: SimStore, sight: ClusterSight, dice: Random) -> None:
        self._store = store
        self._sight = sight
        self._dice = dice
        self.deeds: Mapping[str, Deed] = {
            "reassignment": self._reassign,
            "reassignment cancelled": self._cancel,
            "preferred leaders": self._prefer,
            "broker drained": self._drain,
        }

    async def admit_all(self) -> None:
        """Nobody is to leave any more."""
        for broker in sorted(self._sight.view().registry):
            await self._write(lambda view, one=broker: broker_requests.admit(view, one))  # type: ignore[misc]

    async def _reassign(self, _machine: Machine) -> None:
        """Send some partition to as many replicas as it has, on other brokers or in another order."""
        view = self._sight.view()
        partitions = self._sight.partitions()
        if not partitions:
            return
        name = self._dice.choice(sorted(partitions))
        takers = sorted(view.takers())
        count = min(len(takers), len(partitions[name].target))
        if not count:
            return
        target = self._dice.sample(takers, count)
        await self._write(lambda now: _reassigned(now, name, target))

    async def _cancel(self, _machine: Machine) -> None:
        moving = sorted(
            name for name, one in self._sight.partitions().items() if one.adding or one.removing
        )
        if moving:
            name = self._dice.choice(moving)
            await self._write(lambda now: _reassigned(now, name, None))

    async def _prefer(self, _machine: Machine) -> None:
        await self._write(lambda view: elect_leaders(view, ElectionKind.PREFERRED).writes)

    async def _drain(self, machine: Machine) -> None:
        """For a while; what has left by then stays away."""
        broker = machine.id
        await self._write(lambda view: broker_requests.drain(view, broker))
        await asyncio.sleep(self._dice.choice((1.0, 5.0, 20.0)) * self._dice.random())
        await self._write(lambda view: broker_requests.admit(view, broker))

    async def _write(self, decide: Decide) -> None:
        for _ in range(TRIES_MAX):
            try:
                for write in decide(self._sight.view()):
                    self._store.transact(write.guards, write.puts, write.deletes, None)
            except GuardFailed:
                await asyncio.sleep(0.05)
                continue
            except RequestError:
                # It cannot be, as things are.
                return
            return


def _reassigned(
    view: ClusterView, name: TopicPartition, target: Sequence[BrokerId] | None
) -> Sequence[GuardedWrite]:
    return reassign(view, {name: target}).writes
