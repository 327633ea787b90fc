"""A simulated client believes of leaders what real ones believe."""

from random import Random
from types import SimpleNamespace
from typing import Any

from respool.model.ids import BrokerId, TopicPartition
from respool.sim.checks.history import History
from respool.sim.clients.sim_client import SimClient
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock

NAME = TopicPartition("rides", 0)
ONE, TWO = BrokerId(1), BrokerId(2)


class Told(SimClient):
    """Hears of leaders what a test says."""

    says: list[tuple[int, int]]

    async def ask(self, *_: Any, **__: Any) -> Any:
        leader, epoch = self.says.pop(0)
        partition = SimpleNamespace(partition_index=0, leader_id=leader, leader_epoch=epoch)
        return SimpleNamespace(topics=[SimpleNamespace(name="rides", partitions=[partition])])


def test_who_led_before_is_forgotten_when_nobody_does() -> None:
    """1. A leader is known.   2. In a later epoch there is none.   3. Asked in that epoch, the old one would answer."""
    loop = SimLoop()
    client = Told(
        "reader",
        loop=loop,
        clock=NodeClock(loop),
        rng=Random(1),
        history=History(),
        brokers={ONE: ("127.0.0.1", 9092), TWO: ("127.0.0.2", 9092)},
    )

    async def story() -> None:
        client.says = [(1, 6)]
        assert await client.leader_of(NAME) == ONE
        client.says = [(-1, 9)]
        await client._look_up(NAME)
        # Old news change nothing.
        client.says = [(1, 6), (2, 10)]
        assert await client.leader_of(NAME) == TWO
        assert client.epoch_of(NAME) == 10

    loop.run(story)
