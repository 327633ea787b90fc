"""Events that faults wait for: elections and ISR changes, seen as they are written to the metadata store."""

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
        """The leader that is elected next, when it is written; None if there was no election in time."""
        return await self._wait(self._electing, patience_s)

    async def next_isr_change(self, patience_s: float) -> BrokerId | None:
        """The leader of the partition whose ISR changes next without an election; None if none did in time."""
        return await self._wait(self._changing, patience_s)

    async def _wait(
        self, waiting: list["asyncio.Future[BrokerId]"], patience_s: float
    ) -> BrokerId | None:
        event: asyncio.Future[BrokerId] = asyncio.get_running_loop().create_future()
        waiting.append(event)
        try:
            async with asyncio.timeout(patience_s):
                return await event
        except TimeoutError:
            return None
        finally:
            if event in waiting:
                waiting.remove(event)

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
                _notify(self._electing, image.leader)
            elif image.isr != before.isr:
                _notify(self._changing, image.leader)


def _notify(waiting: list["asyncio.Future[BrokerId]"], leader: BrokerId) -> None:
    waiters, waiting[:] = waiting[:], []
    for event in waiters:
        # The waiter belongs to another process than the writer, and resumes later.
        if not event.done():
            event.set_result(leader)
