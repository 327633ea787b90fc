"""Faults of a simulated cluster: of several machines at once, of a leader or of the controller."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from respool.model.ids import BrokerId
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.clients.operator import Operator
from respool.sim.faults.restarter import Restarter
from respool.sim.faults.triggers import Triggers
from respool.sim.machine import Fault, Machine
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.runtime.process import Process
from respool.sim.runtime.sim_loop import SimLoop

# How long a rolling restart waits for a broker before it restarts the next one.
ROLLING_LOOKS_MAX = 150
ROLLING_LOOK_EVERY_S = 0.2

# How long a fault waits for its trigger.
MOMENT_PATIENCE_S = 5.0


class ClusterFaults:
    """Each fault gets a machine that is drawn at random; faults of the whole cluster ignore it."""

    def __init__(
        self,
        *,
        loop: SimLoop,
        network: SimNetwork,
        machines: Sequence[Machine],
        restarter: Restarter,
        observer: ClusterObserver,
        operator: Operator,
        triggers: Triggers,
        session_ttl_ms: int,
        rng: Random,
    ) -> None:
        self.clients: Sequence[Process] = ()
        self._loop = loop
        self._network = network
        self._machines = machines
        self._restarter = restarter
        self._observer = observer
        self._triggers = triggers
        self._ttl_s = session_ttl_ms / 1000
        self._rng = rng
        self._is_rolling = False
        self.faults: Mapping[str, Fault] = {
            "brokers cut apart": self._cut_apart,
            "one-way cut": self._cut_one_way,
            "one broker isolated": self._isolate,
            "leader isolated": self._leader_isolated,
            "leader paused": self._leader_paused,
            "leader killed": self._leader_killed,
            "leader without store": self._leader_without_store,
            "controller isolated": self._controller_isolated,
            "controller paused": self._controller_paused,
            "store outage": self._store_outage,
            "late watches": self._late_watches,
            "struck at an election": self._struck_at_election,
            "struck at an ISR change": self._struck_at_isr_change,
            "two killed": self._two_killed,
            "all without power": self._all_without_power,
            "rolling restart": self._rolling_restart,
            **operator.actions,
        }

    # -- networks ----------------------------------------------------------------------------------------------------

    async def _cut_apart(self, _machine: Machine) -> None:
        """Partition the brokers into two sides; clients and the store reach both."""
        hosts = [one.host for one in self._machines]
        side = set(self._rng.sample(hosts, self._rng.randint(1, len(hosts) - 1)))
        await self._cut(
            [(a, b) for a in hosts for b in hosts if (a in side) != (b in side)], self._a_while_s()
        )

    async def _cut_one_way(self, machine: Machine) -> None:
        """Lose all traffic from the machine to some others, or from them to it."""
        others = [one.host for one in self._machines if one is not machine]
        others = self._rng.sample(others, self._rng.randint(1, len(others)))
        is_outwards = self._rng.random() < 0.5
        ways = [(machine.host, one) if is_outwards else (one, machine.host) for one in others]
        await self._cut(ways, self._a_while_s())

    async def _isolate(self, machine: Machine) -> None:
        """Isolate the machine from all other brokers, and maybe from the store and from clients."""
        others = [one.host for one in self._machines if one is not machine]
        if self._rng.random() < 0.5:
            others += [one.host for one in self.clients]
        both = [way for one in others for way in ((machine.host, one), (one, machine.host))]
        without_store = self._rng.random() < 0.5
        seconds = self._a_while_s()
        if without_store:
            await asyncio.gather(self._cut(both, seconds), self._cut_store([machine], seconds))
        else:
            await self._cut(both, seconds)

    async def _leader_isolated(self, machine: Machine) -> None:
        await self._isolate(self._some_leader() or machine)

    async def _controller_isolated(self, machine: Machine) -> None:
        controller = self._controller() or machine
        await self._cut_store([controller], self._a_while_s())

    async def _cut(self, ways: Sequence[tuple[str, str]], seconds: float) -> None:
        for way in ways:
            self._network.cut(*way)
        await asyncio.sleep(seconds)
        for way in ways:
            self._network.heal(*way)

    # -- the store ---------------------------------------------------------------------------------------------------

    async def _leader_without_store(self, machine: Machine) -> None:
        await self._cut_store([self._some_leader() or machine], self._a_while_s())

    async def _store_outage(self, _machine: Machine) -> None:
        """No broker reaches the store. Short outages must have no effect; long ones expire every lease."""
        await self._cut_store(self._machines, self._a_while_s())

    async def _cut_store(self, machines: Sequence[Machine], seconds: float) -> None:
        for one in machines:
            one.store_conditions.is_disconnected = True
        await asyncio.sleep(seconds)
        for one in machines:
            one.store_conditions.is_disconnected = False

    async def _late_watches(self, machine: Machine) -> None:
        """The machine's watches deliver changes later than those of all others."""
        machine.store_conditions.watch_lag_ms_max = self._rng.choice((200.0, 2_000.0))
        await asyncio.sleep(self._a_while_s())
        machine.store_conditions.watch_lag_ms_max = 0.0

    # -- processes ---------------------------------------------------------------------------------------------------

    async def _leader_paused(self, machine: Machine) -> None:
        await self._pause(self._some_leader() or machine)

    async def _controller_paused(self, machine: Machine) -> None:
        await self._pause(self._controller() or machine)

    async def _pause(self, machine: Machine) -> None:
        """SIGSTOP, often for longer than its lease; after SIGCONT the process does not know that time has passed."""
        if not machine.is_up:
            return
        machine.pause()
        await asyncio.sleep(self._rng.choice((0.5, 1.1, 2.0)) * self._ttl_s)
        machine.resume()

    async def _leader_killed(self, machine: Machine) -> None:
        await self._crash(self._some_leader() or machine)

    async def _two_killed(self, machine: Machine) -> None:
        others = [one for one in self._machines if one is not machine]
        await asyncio.gather(self._crash(machine), self._crash(self._rng.choice(others)))

    async def _all_without_power(self, _machine: Machine) -> None:
        await asyncio.gather(*(self._crash(one, power_cut=True) for one in self._machines))

    async def _crash(self, machine: Machine, *, power_cut: bool | None = None) -> None:
        if self._restarter.is_busy(machine) or not machine.is_up:
            return
        if power_cut is None:
            power_cut = self._rng.random() < 0.5
        async with self._restarter.restart(machine):
            if power_cut:
                self._restarter.cut_power(machine)
            else:
                self._restarter.kill(machine)

    async def _rolling_restart(self, _machine: Machine) -> None:
        """Restart the brokers one by one, as an upgrade does."""
        if self._is_rolling:
            return
        self._is_rolling = True
        try:
            for machine in self._machines:
                if machine.broker is None or self._restarter.is_busy(machine):
                    continue
                async with self._restarter.restart(machine):
                    await self._restarter.stop(machine)
                await self._until_registered(machine)
        finally:
            self._is_rolling = False

    async def _until_registered(self, machine: Machine) -> None:
        for _ in range(ROLLING_LOOKS_MAX):
            if self._observer.epoch_of(machine.id) is not None:
                return
            await asyncio.sleep(ROLLING_LOOK_EVERY_S)

    # -- at a trigger -----------------------------------------------------------------------------------------

    async def _struck_at_election(self, _machine: Machine) -> None:
        """Inject a fault into a new leader: before, while or after it and its followers apply the election."""
        leader = await self._triggers.next_election(MOMENT_PATIENCE_S)
        await self._strike(leader)

    async def _struck_at_isr_change(self, _machine: Machine) -> None:
        """Inject a fault into a leader whose ISR just changed in the store, and which may not know it yet."""
        leader = await self._triggers.next_isr_change(MOMENT_PATIENCE_S)
        await self._strike(leader)

    async def _strike(self, leader: BrokerId | None) -> None:
        machine = self._machine_of(leader)
        if machine is None or not machine.is_up:
            return
        if self._rng.random() < 0.5:
            machine.store_conditions.is_disconnected = True
        try:
            await asyncio.sleep(self._rng.choice((0.0, 0.05, 0.3, 1.0)) * self._rng.random())
            how = self._rng.random()
            if how < 0.5:
                await self._crash(machine)
            elif how < 0.8:
                await self._pause(machine)
            else:
                await self._isolate(machine)
        finally:
            machine.store_conditions.is_disconnected = False

    # -- targets and durations ---------------------------------------------------------------------------------------

    def _some_leader(self) -> Machine | None:
        leaders = sorted(
            {one.leader for one in self._observer.partitions().values() if one.leader is not None}
        )
        return self._machine_of(self._rng.choice(leaders)) if leaders else None

    def _controller(self) -> Machine | None:
        return self._machine_of(self._observer.controller())

    def _machine_of(self, broker: BrokerId | None) -> Machine | None:
        return next((one for one in self._machines if one.id == broker), None)

    def _a_while_s(self) -> float:
        """A duration shorter than a lease, about as long, or much longer."""
        return self._rng.choice((0.3, 1.0, 1.5, 3.0)) * self._rng.random() * self._ttl_s
