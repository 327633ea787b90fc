"""Who makes trouble in a simulated run. Each seed draws its own mix of troubles, and how often they come."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from respool.sim.loop import SimLoop
from respool.sim.machine import Machine
from respool.sim.network import SimNetwork
from respool.sim.process import Process

# These take what was not synced, so that only acks=all is a promise.
FORGETFUL = frozenset({"power cut", "power cut in a call", "sync error", "append error"})
KINDS = (
    "power cut",
    "power cut in a call",
    "kill",
    "clean restart",
    "sync error",
    "append error",
    "disk full",
    "slow disk",
    "pause",
    "clock jump",
    "connection reset",
    "lost reply",
    "cut to broker",
    "cut from broker",
    "cut both ways",
    "slow network",
    "client pause",
    "store cut",
    "store answers lost",
)
CLOCK_JUMP_MS_MAX = 20_000


class Nemesis:
    def __init__(
        self,
        *,
        loop: SimLoop,
        network: SimNetwork,
        machines: Sequence[Machine],
        dice: Random,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._loop = loop
        self._network = network
        self._machines = machines
        # The processes of clients, which may be cut off or stand still.
        self.clients: Sequence[Process] = ()
        self._dice = dice
        # A few kinds at a time find more than all together, and each comes as often as the seed likes it.
        odds = dice.choice((0.1, 0.3, 0.6))
        self.kinds = [kind for kind in KINDS if dice.random() < odds] or [dice.choice(KINDS)]
        if dice.random() < 0.4:
            self.kinds.append("power cut in a call")
        self._weights = [dice.choice((1, 1, 4)) for _ in self.kinds]
        self._pause_s = dice.choice((0.2, 1.0, 3.0))
        self.clock_jumps_ms = 0
        # Troubles under way, and machines whose process is being ended or started.
        self._under_way: list[asyncio.Task[None]] = []
        self._restarting: set[str] = set()
        self._deeds: Mapping[str, Callable[[Machine], Coroutine[Any, Any, None]]] = {
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

    @property
    def is_forgetful(self) -> bool:
        return not FORGETFUL.isdisjoint(self.kinds)

    async def rage(self, seconds: float) -> None:
        """Make trouble; one may begin while others last."""
        until_s = self._loop.time() + seconds
        while self._loop.time() < until_s:
            await asyncio.sleep(self._dice.expovariate(1 / self._pause_s))
            (kind,) = self._dice.choices(self.kinds, self._weights)
            machine = self._dice.choice(self._machines)
            if machine.host in self._restarting:
                continue
            if not machine.is_up:
                self._start(machine)
                continue
            self._loop.trace.note(self._loop.time(), f"{machine.host}: {kind}")
            self.counts[kind] += 1
            self._under_way.append(asyncio.ensure_future(self._deeds[kind](machine)))

    async def heal(self) -> None:
        """All is well from here on: disks, networks, and every broker up."""
        for deed in self._under_way:
            deed.cancel()
        for result in await asyncio.gather(*self._under_way, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self._network.heal()
        self._network.manners.stall_odds = 0.0
        for client in self.clients:
            client.is_paused = False
        for machine in self._machines:
            machine.store_manners.is_cut = False
            machine.store_manners.lost_answer_odds = 0.0
            machine.resume()
            machine.pace.stall_odds = 0.0
            machine.disk.faults.heal()
            if machine.is_stopping:
                await machine.stop()
            if machine.is_up and self._needs_restart(machine):
                # What an operator does once the disk is sound.
                machine.kill()
            if not machine.is_up:
                self._start(machine)
        self._loop.trace.note(self._loop.time(), "healed")

    def _needs_restart(self, machine: Machine) -> bool:
        """Whether a partition is offline, or will be as soon as the broker hears of a call that has failed."""
        broker = machine.broker
        return (
            broker is None
            or machine.disk.faults.failures_struck > 0
            or any(not one.is_online for one in broker.partitions)
        )

    def _start(self, machine: Machine) -> None:
        machine.start()
        self._loop.trace.note(self._loop.time(), f"{machine.host}: starts")

    # -- processes ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _restart(self, machine: Machine) -> AsyncIterator[None]:
        """End the process in here; it is started again after a while."""
        self._restarting.add(machine.host)
        try:
            yield
            await asyncio.sleep(self._dice.choice((0.0, 0.5, 3.0)) * self._dice.random())
            if not machine.is_up:
                self._start(machine)
        finally:
            self._restarting.discard(machine.host)

    async def _power_cut(self, machine: Machine) -> None:
        async with self._restart(machine):
            # Best when there is something to lose.
            unsynced, patience = self._dice.choice((0, 1, 1_500)), 200
            while machine.is_up and patience and machine.disk.unsynced_bytes < unsynced:
                patience -= 1
                await asyncio.sleep(0.003)
            machine.cut_power()

    async def _power_cut_in_a_call(self, machine: Machine) -> None:
        async with self._restart(machine):
            machine.disk.faults.cut_power_after(self._dice.randrange(40))
            await asyncio.sleep(2 * self._dice.random())
            # A quiet disk is never interrupted.
            machine.cut_power()

    async def _kill(self, machine: Machine) -> None:
        async with self._restart(machine):
            machine.kill()

    async def _clean_restart(self, machine: Machine) -> None:
        if machine.broker is not None:
            async with self._restart(machine):
                await machine.stop()

    async def _stand_still(self, machine: Machine) -> None:
        machine.pause()
        await asyncio.sleep(self._dice.choice((0.2, 3.0, 15.0)) * self._dice.random())
        machine.resume()

    async def _client_pause(self, _machine: Machine) -> None:
        client = self._dice.choice(self.clients)
        client.is_paused = True
        await asyncio.sleep(self._dice.choice((0.5, 5.0, 20.0)) * self._dice.random())
        client.is_paused = False

    async def _clock_jump(self, machine: Machine) -> None:
        jump_ms = self._dice.randint(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)
        machine.clock.skew_ms += jump_ms
        self.clock_jumps_ms += abs(jump_ms)

    # -- disks -------------------------------------------------------------------------------------------------------

    async def _sync_error(self, machine: Machine) -> None:
        machine.disk.faults.fail("sync", nth=self._dice.randint(1, 5), path="*.log")
        await self._suffer_and_restart(machine)

    async def _append_error(self, machine: Machine) -> None:
        machine.disk.faults.fail("append", nth=self._dice.randint(1, 5), path="*.log")
        await self._suffer_and_restart(machine)

    async def _suffer_and_restart(self, machine: Machine) -> None:
        """Partitions that failed stay offline until an operator restarts the broker."""
        await asyncio.sleep(2 * self._dice.random())
        if machine.host in self._restarting:
            return
        async with self._restart(machine):
            how = self._dice.random()
            if how < 0.4:
                machine.kill()
            elif how < 0.7 and machine.broker is not None:
                await machine.stop()
            else:
                machine.cut_power()

    async def _disk_full(self, machine: Machine) -> None:
        room = self._dice.choice((0, 500, 5_000))
        machine.disk.faults.capacity_bytes = machine.disk.used_bytes + room
        await asyncio.sleep(4 * self._dice.random())
        machine.disk.faults.capacity_bytes = None

    async def _slow_disk(self, machine: Machine) -> None:
        machine.pace.stall_odds = self._dice.choice((0.05, 0.3, 1.0))
        machine.pace.stall_ms_max = self._dice.choice((20.0, 500.0, 4_000.0))
        await asyncio.sleep(5 * self._dice.random())
        machine.pace.stall_odds = 0.0

    # -- the metadata store ------------------------------------------------------------------------------------------

    async def _store_cut(self, machine: Machine) -> None:
        machine.store_manners.is_cut = True
        await asyncio.sleep(self._dice.choice((0.5, 6.0)) * self._dice.random())
        machine.store_manners.is_cut = False

    async def _store_answers_lost(self, machine: Machine) -> None:
        machine.store_manners.lost_answer_odds = self._dice.choice((0.2, 0.8))
        await asyncio.sleep(4 * self._dice.random())
        machine.store_manners.lost_answer_odds = 0.0

    # -- networks ----------------------------------------------------------------------------------------------------

    async def _reset(self, machine: Machine) -> None:
        for link in self._network.links_of(machine.host):
            if self._dice.random() < 0.5:
                link.reset()

    async def _lose_reply(self, machine: Machine) -> None:
        for link in self._network.links_of(machine.host):
            if self._dice.random() < 0.5:
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
        await asyncio.sleep(self._dice.choice((0.5, 4.0, 12.0)) * self._dice.random())
        for way in ways:
            self._network.heal(*way)

    def _some_clients(self) -> list[str]:
        return [client.host for client in self.clients if self._dice.random() < 0.6]

    async def _slow_network(self, _machine: Machine) -> None:
        manners = self._network.manners
        manners.stall_odds = self._dice.choice((0.02, 0.2))
        manners.stall_ms_max = self._dice.choice((50.0, 1_000.0, 6_000.0))
        await asyncio.sleep(5 * self._dice.random())
        manners.stall_odds = 0.0
