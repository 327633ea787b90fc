"""Faults that start a broker of a simulated cluster without its disk.

Either the disk is not mounted: the broker finds an empty folder, and gets its own disk back later; partitions that are
only on that disk stay offline meanwhile. Or the disk is replaced: then other brokers must have all of its content.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from respool.sim.clients.operator import Operator
from respool.sim.faults.restarter import Restarter
from respool.sim.machine import Fault, Machine

LOOK_EVERY_S = 0.2


class DiskSwaps:
    def __init__(
        self,
        *,
        machines: Sequence[Machine],
        restarter: Restarter,
        operator: Operator,
        rng: Random,
    ) -> None:
        self.faults: Mapping[str, Fault] = {
            "disk not mounted": self._not_mounted,
            "disk replaced": self._replaced,
        }
        self._machines = machines
        self._restarter = restarter
        self._operator = operator
        self._rng = rng

    async def put_back(self, patience_s: float) -> None:
        """Mount every disk on its own machine again, once others have copied what was written to its substitute."""
        for _ in range(round(patience_s / LOOK_EVERY_S)):
            machine = self._without_its_disk()
            if machine is None:
                return
            # The broker may have the only replica of a partition by now, and other replicas may wait for its own disk.
            await self._operator.add_replicas(machine.id)
            if machine.is_without_its_disk and not self._restarter.is_busy(machine):
                await self._change_disk(machine)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _not_mounted(self, machine: Machine) -> None:
        if machine.broker is None:
            return
        async with self._restarter.restart(machine):
            await self._restarter.end(machine)
            # One machine at a time: a partition that only two of them have would wait for both.
            if not machine.is_up and self._without_its_disk() is None:
                machine.unmount_disk()
        await asyncio.sleep(self._rng.choice((0.5, 5.0, 15.0)) * self._rng.random())
        await self.put_back(patience_s=10.0)

    async def _replaced(self, machine: Machine) -> None:
        if not machine.is_without_its_disk:
            await self._change_disk(machine)

    async def _change_disk(self, machine: Machine) -> None:
        if machine.broker is None or not self._restarter.is_elsewhere(machine):
            return
        async with self._restarter.restart(machine):
            await self._restarter.end(machine)
            if not machine.is_up:
                self._restarter.change_disk(machine)

    def _without_its_disk(self) -> Machine | None:
        return next((one for one in self._machines if one.is_without_its_disk), None)
