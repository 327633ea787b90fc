"""Faults of one machine: its process, its disk, its connections to clients and to the metadata store."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from respool.sim.faults.restarter import Restarter
from respool.sim.machine import Fault, Machine
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.runtime.process import Process

CLOCK_JUMP_MS_MAX = 20_000


class MachineFaults:
    def __init__(self, *, network: SimNetwork, restarter: Restarter, rng: Random) -> None:
        # The processes of clients, which faults may disconnect or pause.
        self.clients: Sequence[Process] = ()
        self.clock_jumps_ms = 0
        self._network = network
        self._restarter = restarter
        self._rng = rng
        # The order affects what a seed draws.
        self.faults: Mapping[str, Fault] = {
            "power cut": self._power_cut,
            "power cut in a call": self._power_cut_in_a_call,
            "kill": self._kill,
            "clean restart": self._clean_restart,
            "sync error": self._sync_error,
            "append error": self._append_error,
            "disk full": self._disk_full,
            "slow disk": self._slow_disk,
            "pause": self._stand_still,
            "clock jump": self._clock_jump,
            "connection reset": self._reset,
            "lost reply": self._lose_reply,
            "cut to broker": self._cut_to,
            "cut from broker": self._cut_from,
            "cut both ways": self._cut_both_ways,
            "slow network": self._slow_network,
            "client pause": self._client_pause,
            "store cut": self._store_cut,
            "store answers lost": self._store_answers_lost,
        }

    # -- processes ---------------------------------------------------------------------------------------------------

    async def _power_cut(self, machine: Machine) -> None:
        async with self._restarter.restart(machine):
            # Wait for unsynced bytes, so that there is something to lose.
            unsynced, patience = self._rng.choice((0, 1, 1_500)), 200
            while machine.is_up and patience and machine.disk.unsynced_bytes < unsynced:
                patience -= 1
                await asyncio.sleep(0.003)
            self._restarter.cut_power(machine)

    async def _power_cut_in_a_call(self, machine: Machine) -> None:
        async with self._restarter.restart(machine):
            machine.disk.faults.cut_power_after(self._rng.randrange(40))
            await asyncio.sleep(2 * self._rng.random())
            # A disk without calls is never interrupted.
            self._restarter.cut_power(machine)

    async def _kill(self, machine: Machine) -> None:
        async with self._restarter.restart(machine):
            self._restarter.kill(machine)

    async def _clean_restart(self, machine: Machine) -> None:
        if machine.broker is not None:
            async with self._restarter.restart(machine):
                await self._restarter.stop(machine)

    async def _stand_still(self, machine: Machine) -> None:
        machine.pause()
        await asyncio.sleep(self._rng.choice((0.2, 3.0, 15.0)) * self._rng.random())
        machine.resume()

    async def _client_pause(self, _machine: Machine) -> None:
        client = self._rng.choice(self.clients)
        client.is_paused = True
        await asyncio.sleep(self._rng.choice((0.5, 5.0, 20.0)) * self._rng.random())
        client.is_paused = False

    async def _clock_jump(self, machine: Machine) -> None:
        jump_ms = self._rng.randint(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)
        machine.clock.skew_ms += jump_ms
        self.clock_jumps_ms += abs(jump_ms)

    # -- disks -------------------------------------------------------------------------------------------------------

    async def _sync_error(self, machine: Machine) -> None:
        machine.disk.faults.fail("sync", nth=self._rng.randint(1, 5), path="*.log")
        await self._suffer_and_restart(machine)

    async def _append_error(self, machine: Machine) -> None:
        machine.disk.faults.fail("append", nth=self._rng.randint(1, 5), path="*.log")
        await self._suffer_and_restart(machine)

    async def _suffer_and_restart(self, machine: Machine) -> None:
        """Partitions that failed stay offline until an operator restarts the broker."""
        await asyncio.sleep(2 * self._rng.random())
        if self._restarter.is_busy(machine):
            return
        async with self._restarter.restart(machine):
            await self._restarter.end(machine)

    async def _disk_full(self, machine: Machine) -> None:
        room = self._rng.choice((0, 500, 5_000))
        machine.disk.faults.capacity_bytes = machine.disk.used_bytes + room
        await asyncio.sleep(4 * self._rng.random())
        machine.disk.faults.capacity_bytes = None

    async def _slow_disk(self, machine: Machine) -> None:
        machine.pace.stall_odds = self._rng.choice((0.05, 0.3, 1.0))
        machine.pace.stall_ms_max = self._rng.choice((20.0, 500.0, 4_000.0))
        await asyncio.sleep(5 * self._rng.random())
        machine.pace.stall_odds = 0.0

    # -- the metadata store ------------------------------------------------------------------------------------------

    async def _store_cut(self, machine: Machine) -> None:
        machine.store_conditions.is_disconnected = True
        await asyncio.sleep(self._rng.choice((0.5, 6.0)) * self._rng.random())
        machine.store_conditions.is_disconnected = False

    async def _store_answers_lost(self, machine: Machine) -> None:
        machine.store_conditions.lost_answer_odds = self._rng.choice((0.2, 0.8))
        await asyncio.sleep(4 * self._rng.random())
        machine.store_conditions.lost_answer_odds = 0.0

    # -- networks ----------------------------------------------------------------------------------------------------

    async def _reset(self, machine: Machine) -> None:
        for link in self._network.links_of(machine.host):
            if self._rng.random() < 0.5:
                link.reset()

    async def _lose_reply(self, machine: Machine) -> None:
        for link in self._network.links_of(machine.host):
            if self._rng.random() < 0.5:
                link.loses_next_reply = True

    async def _cut_to(self, machine: Machine) -> None:
        await self._cut([(client, machine.host) for client in self._some_clients()])

    async def _cut_from(self, machine: Machine) -> None:
        await self._cut([(machine.host, client) for client in self._some_clients()])

    async def _cut_both_ways(self, machine: Machine) -> None:
        clients = self._some_clients()
        there = [(client, machine.host) for client in clients]
        back = [(machine.host, client) for client in clients]
        await self._cut(there + back)

    async def _cut(self, ways: list[tuple[str, str]]) -> None:
        for way in ways:
            self._network.cut(*way)
        await asyncio.sleep(self._rng.choice((0.5, 4.0, 12.0)) * self._rng.random())
        for way in ways:
            self._network.heal(*way)

    def _some_clients(self) -> list[str]:
        return [client.host for client in self.clients if self._rng.random() < 0.6]

    async def _slow_network(self, _machine: Machine) -> None:
        conditions = self._network.conditions
        conditions.stall_odds = self._rng.choice((0.02, 0.2))
        conditions.stall_ms_max = self._rng.choice((50.0, 1_000.0, 6_000.0))
        await asyncio.sleep(5 * self._rng.random())
        conditions.stall_odds = 0.0
