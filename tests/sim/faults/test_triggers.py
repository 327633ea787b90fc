"""Whoever lies in wait is told of the moment, and of no other."""

import asyncio
from dataclasses import replace
from uuid import UUID

from respool.cluster import keys
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.sim.faults.triggers import Triggers
from respool.sim.net.simulated_store import SimStore
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock

KEY = keys.partition_key(TopicId(UUID(int=1)), 0)
ONE, TWO = BrokerId(1), BrokerId(2)
LED = PartitionImage(replicas=(ONE, TWO), isr=(ONE, TWO), leader=ONE, leader_epoch=LeaderEpoch(0))


def test_an_election_and_an_isr_change_are_told_apart() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        store = SimStore(clock=NodeClock(loop))
        moments = Triggers(store)

        def put(image: PartitionImage) -> None:
            store.transact((), {KEY: keys.encode_partition(image)}, (), None)

        put(LED)
        election = asyncio.ensure_future(moments.next_election(5))
        change = asyncio.ensure_future(moments.next_isr_change(5))
        await asyncio.sleep(0.1)
        put(replace(LED, isr=(ONE,)))
        assert await change == ONE
        assert not election.done()
        put(replace(LED, leader=TWO, leader_epoch=LeaderEpoch(1)))
        assert await election == TWO

    loop.run(story)


def test_a_moment_that_does_not_come_is_given_up() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        moments = Triggers(SimStore(clock=NodeClock(loop)))
        assert await moments.next_election(3) is None
        assert loop.time() == 3

    loop.run(story)
