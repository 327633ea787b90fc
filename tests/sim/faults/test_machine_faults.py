"""A fault of a machine is there while it lasts, and leaves nothing behind."""

import asyncio
from collections.abc import Callable

import pytest

from respool.model.settings import Settings
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.faults.machine_faults import MachineFaults
from respool.sim.faults.restarter import Restarter
from respool.sim.machine import Machine
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.net.simulated_store import SimStore
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock, rng_of


class World:
    """A machine whose process does nothing, and its clients."""

    def __init__(self, loop: SimLoop) -> None:
        self.network = SimNetwork(loop, rng_of("network", 1))
        store = SimStore(clock=NodeClock(loop))
        self.machine = Machine(
            loop=loop,
            network=self.network,
            store=store,
            settings=Settings.from_flat(broker_id=1, listen="127.0.0.1:9092"),
            seed=1,
        )
        self.machine.process = loop.new_process(self.machine.host)
        restarter = Restarter(
            loop=loop,
            machines=[self.machine],
            rng=rng_of("restarter", 1),
            observer=ClusterObserver(store),
            is_synced=True,
        )
        self.clients = [loop.new_process(f"client-{number}") for number in range(8)]
        self.faults = MachineFaults(
            network=self.network, restarter=restarter, rng=rng_of("faults", 1)
        )
        self.faults.clients = self.clients


def _is_paused(world: World) -> bool:
    process = world.machine.process
    return process is not None and process.is_paused


def _ways(world: World) -> set[tuple[bool, bool]]:
    """The states of the clients' connections: whether requests are cut, and whether replies are."""
    host, is_blocked = world.machine.host, world.network.is_blocked
    return {(is_blocked(one.host, host), is_blocked(host, one.host)) for one in world.clients}


WHOLE = (False, False)


@pytest.mark.parametrize(
    ("fault", "is_on"),
    [
        ("pause", _is_paused),
        ("client pause", lambda world: any(one.is_paused for one in world.clients)),
        ("disk full", lambda world: world.machine.disk.faults.capacity_bytes is not None),
        ("slow disk", lambda world: world.machine.pace.stall_odds > 0),
        ("store cut", lambda world: world.machine.store_conditions.is_disconnected),
        ("store answers lost", lambda world: world.machine.store_conditions.lost_answer_odds > 0),
        ("slow network", lambda world: world.network.conditions.stall_odds > 0),
        ("cut to broker", lambda world: _ways(world) == {WHOLE, (True, False)}),
        ("cut from broker", lambda world: _ways(world) == {WHOLE, (False, True)}),
        ("cut both ways", lambda world: _ways(world) == {WHOLE, (True, True)}),
    ],
)
def test_a_fault_ends_and_leaves_nothing_behind(fault: str, is_on: Callable[[World], bool]) -> None:
    loop = SimLoop(1)
    world = World(loop)
    seen: list[bool] = []

    async def story() -> None:
        seen.append(is_on(world))
        lasting = asyncio.ensure_future(world.faults.faults[fault](world.machine))
        await asyncio.sleep(0)
        seen.append(is_on(world))
        await lasting
        seen.append(is_on(world))

    loop.run(story)
    assert seen == [False, True, False]
    assert _ways(world) == {WHOLE}


def test_a_clock_jump_lasts_and_is_counted() -> None:
    loop = SimLoop(1)
    world = World(loop)

    async def story() -> None:
        for _ in range(2):
            before = world.machine.clock.skew_ms
            counted = world.faults.clock_jumps_ms
            await world.faults.faults["clock jump"](world.machine)
            jump_ms = abs(world.machine.clock.skew_ms - before)
            assert jump_ms > 0
            assert world.faults.clock_jumps_ms == counted + jump_ms

    loop.run(story)
