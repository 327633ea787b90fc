"""Triggers of a simulated cluster that are worth waiting for: what is written to the store says when they come."""

import asyncio
from collections.abc import Sequence

from respool.cluster import keys
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId
from respool.ports.metadata_store import KeyChanged
from respool.sim.net.simulated_store import SimStore


class Triggers:
    def __init__(self, store: SimStore) -> None:
        self._images: dict[str, PartitionImage] = {}
        self._electing: list[asyncio.Future[BrokerId]] = []
        self._changing: list[asyncio.Future[BrokerId]] = []
        store.listeners.append(self._on_written)

    async def next_election(self, patience_s: float) -> BrokerId | None:
        """Who was elected, at the moment it is written; None: nobody was."""
        return await self._wait(self._electing, patience_s)

    async def next_isr_change(self, patience_s: float) -> BrokerId | None:
        """Who leads the partition whose ISR has changed under the same leader."""
        return await self._wait(self._changing, patience_s)

    async def _wait(
        self, waiting: list["asyncio.Future[BrokerId]"], patience_s: float
    ) -> BrokerId | None:
        moment: asyncio.Future[BrokerId] = asyncio.get_running_loop().create_future()
        waiting.append(moment)
        try:
            async with asyncio.timeout(patience_s):
                return await moment
        except TimeoutError:
            return None
        finally:
            if moment in waiting:
                waiting.remove(moment)

    def _on_written(self, changes: Sequence[KeyChanged]) -> None:
        for change in changes:
            if not change.key.startswith(keys.PARTITIONS) or change.value is None:
                continue
            image = keys.decode_partition(change.value)
            before = self._images.get(change.key, image)
            self._images[change.key] = image
            if image.leader is None:
                continue
            if image.leader_epoch != before.leader_epoch:
                _tell(self._electing, image.leader)
            elif image.isr != before.isr:
                _tell(self._changing, image.leader)


def _tell(waiting: list["asyncio.Future[BrokerId]"], leader: BrokerId) -> None:
    told, waiting[:] = waiting[:], []
    for moment in told:
        # It lies in another process than who writes, which hears of it a moment later.
        if not moment.done():
            moment.set_result(leader)
