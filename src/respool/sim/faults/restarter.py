"""Who ends processes in a simulated run, and starts them again. One at a time for each machine.

What a topic promises decides what may be done to it. With respool.flush=always anything may be. With less, what is
committed is only in the memory of the in-sync replicas: it may be lost where the last of them loses its power, and
nobody has promised otherwise. A broker that was killed cannot know that its machine kept its memory, so a kill is the
same. There, `may_crash` is asked first. It sees things as they are. After the crash, and before the store knows of it,
partitions could be made of crashed replicas only, or be left to them by one whose disk is full. They would wait for an
operator, as is promised where two fail at once: `spare_in_sync` keeps such writes from the store. The same goes for
disks that do not come back, whatever is synced.
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
        """`is_synced`: what is acknowledged is on the disk, so that nothing needs to be spared."""
        self._loop = loop
        self._machines = {one.id: one for one in machines}
        self._rng = rng
        self._observer = observer
        self._is_synced = is_synced
        self._restarting: set[str] = set()
        # How often nobody was struck, to keep what was not promised to be kept otherwise.
        self.spared = 0
        # The store's revision when a machine crashed: until it has registered after that, the store may say that it is
        # in sync though it is not.
        self._crashed_at: dict[BrokerId, int] = {}
        # The same for those whose disks do not come back.
        self._replaced_at: dict[BrokerId, int] = {}

    def is_busy(self, machine: Machine) -> bool:
        """Whether its process is being ended or started."""
        return machine.host in self._restarting

    def start(self, machine: Machine) -> None:
        machine.start()
        self._loop.trace.note(self._loop.time(), f"{machine.host}: starts")

    @asynccontextmanager
    async def restart(self, machine: Machine) -> AsyncIterator[None]:
        """End the process in here; it is started again after a while."""
        self._restarting.add(machine.host)
        try:
            yield
            await asyncio.sleep(self._rng.choice((0.0, 0.5, 3.0)) * self._rng.random())
            if not machine.is_up:
                self.start(machine)
        finally:
            self._restarting.discard(machine.host)

    def kill(self, machine: Machine) -> bool:
        """False: it may not be."""
        if not self.may_crash(machine):
            return False
        self._on_crash(machine)
        machine.kill()
        return True

    def cut_power(self, machine: Machine) -> bool:
        """False: it may not be."""
        if not self.may_crash(machine):
            return False
        self._on_crash(machine)
        machine.cut_power()
        return True

    async def stop(self, machine: Machine) -> None:
        """Cleanly, if it can: a broker that cannot reach the store then stops as if it had crashed."""
        if self.may_crash(machine):
            self._on_crash(machine)
            await machine.stop()
            # It may have registered again meanwhile, after a lease that it had lost.
            self._on_crash(machine)

    async def end(self, machine: Machine) -> None:
        """In one of three ways, if it may be ended."""
        how = self._rng.random()
        if how < 0.4:
            self.kill(machine)
        elif how < 0.7 and machine.broker is not None:
            await self.stop(machine)
        else:
            self.cut_power(machine)

    def change_disk(self, machine: Machine) -> bool:
        """Of one that is down: for its own, if it has not got that, else for an empty one. False: it may not be."""
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
        """Whether nothing is lost by it, for sure."""
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
            # Nobody is left to copy from, or it is the last who has it.
            if me in (*image.isr, *image.elr, image.last_leader) and not any(
                self.has_everything(one) for one in image.isr if one != me
            ):
                return False
        return True

    def has_everything(self, broker: BrokerId) -> bool:
        """Whether the store is right when it says that this broker is in sync."""
        machine = self._machines[broker]
        return machine.is_up and machine.broker is not None and self._is_registered_anew(broker)

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
        return self._is_registered_anew(broker)

    def _is_registered_anew(self, broker: BrokerId) -> bool:
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
            if self._is_registered_anew(broker):
                del self._crashed_at[broker]
        for broker, revision in list(self._replaced_at.items()):
            if (self._observer.epoch_of(broker) or 0) > revision:
                del self._replaced_at[broker]
