"""Ends processes of a simulated run and starts them again, one at a time for each machine.

The durability of topics limits the faults. With respool.flush=always every crash is allowed. With less, committed data
is only in the memory of the in-sync replicas, and may be lost when the last of them crashes; this breaks no guarantee.
A killed broker cannot know whether its machine kept its memory, so a kill counts as a power cut. So `may_crash` is
checked first, against the true state. Between a crash and the store's knowledge of it, an ISR could become crashed
replicas only; the partition would wait for an operator, as documented for two failures at once. `spare_in_sync` keeps
such writes from the store. The same applies to replaced disks, whatever is synced.
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
from respool.sim.runtime.machine import Machine
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
        """`is_synced`: acknowledged data is on the disk, so no replica needs to be spared."""
        self._loop = loop
        self._machines = {one.id: one for one in machines}
        self._rng = rng
        self._observer = observer
        self._is_synced = is_synced
        self._restarting: set[str] = set()
        # How many crashes were skipped because they would have lost data that is not guaranteed.
        self.spared = 0
        # The store's revision when a machine crashed: until it has registered after that, the store may wrongly list it
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
        """End this process; it is restarted after a while."""
        self._restarting.add(machine.host)
        try:
            yield
            await asyncio.sleep(self._rng.choice((0.0, 0.5, 3.0)) * self._rng.random())
            if not machine.is_up:
                self.start(machine)
        finally:
            self._restarting.discard(machine.host)

    def kill(self, machine: Machine) -> bool:
        """False if that is not allowed now."""
        if not self.may_crash(machine):
            return False
        self._on_crash(machine)
        machine.kill()
        return True

    def cut_power(self, machine: Machine) -> bool:
        """False if that is not allowed now."""
        if not self.may_crash(machine):
            return False
        self._on_crash(machine)
        machine.cut_power()
        return True

    async def stop(self, machine: Machine) -> None:
        """Stop cleanly, if possible: a broker that does not reach the store stops as if it had crashed."""
        if self.may_crash(machine):
            self._on_crash(machine)
            await machine.stop()
            # It may have registered again meanwhile, after its lease had expired.
            self._on_crash(machine)

    async def end(self, machine: Machine) -> None:
        """Kill it, stop it or cut its power, if that is allowed now."""
        how = self._rng.random()
        if how < 0.4:
            self.kill(machine)
        elif how < 0.7 and machine.broker is not None:
            await self.stop(machine)
        else:
            self.cut_power(machine)

    def change_disk(self, machine: Machine) -> bool:
        """Give a stopped machine its own disk again, or an empty one if it has it. False if that is not allowed now."""
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
        """True if it certainly loses nothing."""
        if self._is_synced or self.is_elsewhere(machine):
            return True
        self.spared += 1
        return False

    def is_elsewhere(self, machine: Machine) -> bool:
        """Whether everything committed here is also somewhere else, for sure; but for what waits for another disk."""
        me = machine.id
        entry = self._observer.view().registry.get(me)
        folder = None if entry is None else entry.folder
        for image in self._observer.partitions().values():
            waits_for_other = image.last_leader == me and image.last_folder not in (None, folder)
            if waits_for_other and machine.is_without_its_disk:
                # Else it may be its own that is waited for, which it has not registered with yet.
                continue
            # No other replica to copy from, or this is the last one.
            if me in (*image.isr, *image.elr, image.last_leader) and not any(
                self.has_everything(one) for one in image.isr if one != me
            ):
                return False
        return True

    def has_everything(self, broker: BrokerId) -> bool:
        """Whether the store is right when it says that this broker is in sync."""
        machine = self._machines[broker]
        return (
            machine.is_up and machine.broker is not None and self._is_registered_since_crash(broker)
        )

    def spare_in_sync(self, puts: Mapping[str, bytes]) -> None:
        """For `SimStore.screens`: let no partition come into the hands of replicas that have all crashed already.

        Raises:
            StoreUnavailable: as in an outage, which everybody must stand.
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
        """Who is believed to have all of it."""
        if not self._is_synced or image.isr:
            return image.isr
        last = image.last_leader
        return image.elr or (() if last is None else (last,))

    def _is_left(self, broker: BrokerId) -> bool:
        """Whether it has what it had when it was in sync: also where it has lost its lease, and nothing else."""
        if self._is_synced:
            return broker not in self._replaced_at
        if self._observer.epoch_of(broker) is None:
            return self._machines[broker].is_up and broker not in self._crashed_at
        return self._is_registered_since_crash(broker)

    def _is_registered_since_crash(self, broker: BrokerId) -> bool:
        """Whether the store speaks of the process that runs now, or ran last, and will for a while.

        One may register though it was asked to stop before; it is gone soon, and its stop may be none that counts.
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
