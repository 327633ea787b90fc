"""Ends processes of a simulated run and starts them again, one at a time for each machine.

The durability of topics limits the faults. With respool.flush=always every crash is allowed. With less, committed data
is only in the memory of the in-sync replicas, and may be lost when the last of them crashes; this breaks no guarantee.
A killed broker cannot know whether its machine kept its memory, so a kill counts as a power cut. Therefore `may_crash`
is checked first, against the true state. Before the store knows of a crash, an ISR could shrink to crashed replicas
only; the partition would then wait for an operator, as documented for two failures at once. `spare_in_sync` keeps such
writes from the store. The same applies to replaced disks, even with flush=always.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

from respool.cluster import keys
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId
from respool.ports.metadata_store import StoreUnavailable
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.machine import Machine
from respool.sim.runtime.sim_loop import SimLoop


class Restarter:
    def __init__(
        self,
        *,
        loop: SimLoop,
        machines: Sequence[Machine],
        rng: Random,
        observer: ClusterObserver,
        is_synced: bool,
    ) -> None:
        """`is_synced`: acknowledged data is on disk, so no replica needs to be spared."""
        self._loop = loop
        self._machines = {one.id: one for one in machines}
        self._rng = rng
        self._observer = observer
        self._is_synced = is_synced
        self._restarting: set[str] = set()
        # How many crashes were skipped because they would have lost data whose durability is not guaranteed.
        self.spared = 0
        # The store's revision when a machine crashed. Until the machine registers again, the store may wrongly list it
        # as in sync.
        self._crashed_at: dict[BrokerId, int] = {}
        # The same for machines whose disks were replaced.
        self._replaced_at: dict[BrokerId, int] = {}

    def is_busy(self, machine: Machine) -> bool:
        """True while its process is being ended or started."""
        return machine.host in self._restarting

    def start(self, machine: Machine) -> None:
        machine.start()
        self._loop.trace.note(self._loop.time(), f"{machine.host}: starts")

    @asynccontextmanager
    async def restart(self, machine: Machine) -> AsyncIterator[None]:
        """Enter the block to end this machine's process; after the block it is restarted with a delay."""
        self._restarting.add(machine.host)
        try:
            yield
            await asyncio.sleep(self._rng.choice((0.0, 0.5, 3.0)) * self._rng.random())
            if not machine.is_up:
                self.start(machine)
        finally:
            self._restarting.discard(machine.host)

    def kill(self, machine: Machine) -> bool:
        """Kill the process; return False if that is not allowed now."""
        if not self.may_crash(machine):
            return False
        self._on_crash(machine)
        machine.kill()
        return True

    def cut_power(self, machine: Machine) -> bool:
        """Cut the power; return False if that is not allowed now."""
        if not self.may_crash(machine):
            return False
        self._on_crash(machine)
        machine.cut_power()
        return True

    async def stop(self, machine: Machine) -> None:
        """Stop cleanly, if possible: for a broker that cannot reach the store, a stop is like a crash."""
        if self.may_crash(machine):
            self._on_crash(machine)
            await machine.stop()
            # It may have registered again during the stop, after its lease had expired.
            self._on_crash(machine)

    async def end(self, machine: Machine) -> None:
        """Kill the process, stop it or cut its power, if that is allowed now."""
        how = self._rng.random()
        if how < 0.4:
            self.kill(machine)
        elif how < 0.7 and machine.broker is not None:
            await self.stop(machine)
        else:
            self.cut_power(machine)

    def change_disk(self, machine: Machine) -> bool:
        """Mount a stopped machine's own disk again, or else an empty one. False if that is not allowed now."""
        if not self.is_elsewhere(machine):
            self.spared += 1
            return False
        self._replaced_at[machine.id] = self._observer.revision
        if machine.is_without_its_disk:
            machine.mount_disk()
        else:
            machine.replace_disk()
        return True

    def may_crash(self, machine: Machine) -> bool:
        """True if the crash certainly loses no committed data."""
        if self._is_synced or self.is_elsewhere(machine):
            return True
        self.spared += 1
        return False

    def is_elsewhere(self, machine: Machine) -> bool:
        """True if other brokers have everything committed here, except partitions that wait for another disk."""
        me = machine.id
        entry = self._observer.view().registry.get(me)
        folder = None if entry is None else entry.folder
        for image in self._observer.partitions().values():
            waits_for_other = image.last_leader == me and image.last_folder not in (None, folder)
            if waits_for_other and machine.is_without_its_disk:
                # A broker with its own disk may have to register first: the partition may wait for exactly this disk.
                continue
            # The broker has the only complete replica, or was the last leader.
            if me in (*image.isr, *image.elr, image.last_leader) and not any(
                self.has_everything(one) for one in image.isr if one != me
            ):
                return False
        return True

    def has_everything(self, broker: BrokerId) -> bool:
        """True if the broker really has all data of the partitions for which the store lists it as in sync."""
        machine = self._machines[broker]
        return (
            machine.is_up and machine.broker is not None and self._is_registered_since_crash(broker)
        )

    def spare_in_sync(self, puts: Mapping[str, bytes]) -> None:
        """For `SimStore.screens`: refuse writes that would leave a partition to crashed replicas only.

        Raises:
            StoreUnavailable: the write is refused, as in an outage, which brokers must tolerate.
        """
        self._forget_what_is_over()
        if self._is_synced and not self._replaced_at:
            return
        for key, value in puts.items():
            if not key.startswith(keys.PARTITIONS):
                continue
            before = self._observer.image_at(key)
            hands = self._hands(keys.decode_partition(value))
            if before is not None and not any(map(self._is_left, self._hands(before))):
                continue
            if hands and not any(map(self._is_left, hands)):
                self.spared += 1
                raise StoreUnavailable(f"{key} would be in the hands of {hands}, all crashed")

    def _hands(self, image: PartitionImage) -> Sequence[BrokerId]:
        """The replicas that the store believes to be complete."""
        if not self._is_synced or image.isr:
            return image.isr
        last = image.last_leader
        return image.elr or (() if last is None else (last,))

    def _is_left(self, broker: BrokerId) -> bool:
        """True if the broker still has the data it had when it was in sync, even if it has lost its lease."""
        if self._is_synced:
            return broker not in self._replaced_at
        if self._observer.epoch_of(broker) is None:
            return self._machines[broker].is_up and broker not in self._crashed_at
        return self._is_registered_since_crash(broker)

    def _is_registered_since_crash(self, broker: BrokerId) -> bool:
        """True if the process that is registered in the store runs now or ran last, and is not about to end.

        A process may still register after it was asked to stop; it ends soon, and its stop may not count as clean.
        """
        if self._machines[broker].is_stopping:
            return False
        epoch = self._observer.epoch_of(broker)
        return epoch is not None and epoch > self._crashed_at.get(broker, -1)

    def _on_crash(self, machine: Machine) -> None:
        self._crashed_at[machine.id] = self._observer.revision

    def _forget_what_is_over(self) -> None:
        for broker in list(self._crashed_at):
            if self._is_registered_since_crash(broker):
                del self._crashed_at[broker]
        for broker, revision in list(self._replaced_at.items()):
            if (self._observer.epoch_of(broker) or 0) > revision:
                del self._replaced_at[broker]
