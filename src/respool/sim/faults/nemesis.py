"""Injects faults into a simulated run. Each seed draws its own kinds of faults, and how often they occur."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

from respool.sim.faults.cluster_faults import ClusterFaults
from respool.sim.faults.disk_swaps import DiskSwaps
from respool.sim.faults.machine_faults import MachineFaults
from respool.sim.faults.restarter import Restarter
from respool.sim.machine import Machine
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.runtime.process import Process
from respool.sim.runtime.sim_loop import SimLoop

# These lose unsynced data, so only acks=all promises durability.
FORGETFUL = frozenset({"power cut", "power cut in a call", "sync error", "append error"})
# These cannot be withheld from the last in-sync replica, so they are used only with topics that sync every batch.
UNRULY = frozenset({"power cut in a call", "sync error", "append error", "all without power"})

STARTED_LOOKS_MAX = 100
# How long other brokers may take to copy the content of a disk before it is swapped.
PUT_BACK_S_MAX = 60.0


class Nemesis:
    def __init__(
        self,
        *,
        loop: SimLoop,
        network: SimNetwork,
        machines: Sequence[Machine],
        rng: Random,
        restarter: Restarter,
        cluster: ClusterFaults | None = None,
        disks: DiskSwaps | None = None,
        is_synced: bool = True,
    ) -> None:
        """`is_synced`: acknowledged data is on disk. Otherwise the last in-sync replica is spared, see `Restarter`."""
        self.counts: Counter[str] = Counter()
        self._loop = loop
        self._network = network
        self._machines = machines
        self._rng = rng
        self._restarter = restarter
        self._of_machines = MachineFaults(network=network, restarter=restarter, rng=rng)
        self._of_cluster = cluster
        self._of_disks = disks
        self._faults = dict(self._of_machines.faults)
        if cluster is not None:
            self._faults.update(cluster.faults)
        possible = [one for one in self._faults if is_synced or one not in UNRULY]
        # A few kinds at a time find more bugs than all together; the seed draws how often each occurs.
        odds = rng.choice((0.1, 0.3, 0.6))
        self.kinds = [one for one in possible if rng.random() < odds] or [rng.choice(possible)]
        if rng.random() < 0.4 and is_synced:
            self.kinds.append("power cut in a call")
        if disks is not None:
            self._faults.update(disks.faults)
            self.kinds += disks.faults
        self._weights = [rng.choice((1, 1, 4)) for _ in self.kinds]
        self._pause_s = rng.choice((0.2, 1.0, 3.0))
        self._under_way: list[asyncio.Task[None]] = []

    @property
    def is_forgetful(self) -> bool:
        return not FORGETFUL.isdisjoint(self.kinds)

    @property
    def clock_jumps_ms(self) -> int:
        """The sum of all wall clock jumps, forward and back."""
        return self._of_machines.clock_jumps_ms

    def set_targets(self, clients: Sequence[Process]) -> None:
        """Set the clients that faults may disconnect or pause."""
        self._of_machines.clients = clients
        if self._of_cluster is not None:
            self._of_cluster.clients = clients

    async def inject_faults(self, seconds: float) -> None:
        """Inject faults for a while; they may overlap."""
        until_s = self._loop.time() + seconds
        while self._loop.time() < until_s:
            await asyncio.sleep(self._rng.expovariate(1 / self._pause_s))
            (kind,) = self._rng.choices(self.kinds, self._weights)
            machine = self._rng.choice(self._machines)
            if self._restarter.is_busy(machine):
                continue
            if not machine.is_up:
                self._restarter.start(machine)
                continue
            self._loop.trace.note(self._loop.time(), f"{machine.host}: {kind}")
            self.counts[kind] += 1
            self._under_way.append(asyncio.ensure_future(self._faults[kind](machine)))

    async def heal(self) -> None:
        """End all faults: disks and networks work, and every broker is up."""
        for fault in self._under_way:
            fault.cancel()
        for result in await asyncio.gather(*self._under_way, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self._network.heal()
        self._network.conditions.stall_odds = 0.0
        for client in self._of_machines.clients:
            client.is_paused = False
        for machine in self._machines:
            conditions = machine.store_conditions
            conditions.is_disconnected = False
            conditions.lost_answer_odds = 0.0
            conditions.watch_lag_ms_max = 0.0
            machine.resume()
            machine.pace.stall_odds = 0.0
            machine.disk.faults.heal()
        # Start all before any is stopped: a broker that stops while it registers may wait for another one.
        self._start_all()
        for machine in self._machines:
            if machine.is_stopping:
                await machine.stop()
            if machine.is_up and self._needs_restart(machine):
                # As an operator does after the disk was repaired.
                self._restarter.kill(machine)
            self._start_all()
        if self._of_cluster is not None:
            for machine in self._machines:
                await self._until_started(machine)
        if self._of_disks is not None:
            await self._of_disks.put_back(PUT_BACK_S_MAX)
        self._loop.trace.note(self._loop.time(), "healed")

    def _start_all(self) -> None:
        for machine in self._machines:
            if not machine.is_up:
                self._restarter.start(machine)

    async def _until_started(self, machine: Machine) -> None:
        """Repeat the start until it succeeds, as systemd does: a start without the store may fail late."""
        for _ in range(STARTED_LOOKS_MAX):
            if machine.broker is not None:
                return
            if not machine.is_up:
                self._restarter.start(machine)
            await asyncio.sleep(0.1)

    def _needs_restart(self, machine: Machine) -> bool:
        """True if a partition is offline, or will be when the broker gets the result of a failed disk call."""
        broker = machine.broker
        return (
            broker is None
            or machine.disk.faults.failures_struck > 0
            or any(not one.is_online for one in broker.partitions)
        )
