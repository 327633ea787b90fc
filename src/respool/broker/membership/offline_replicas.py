"""Reports replicas that went offline on this broker: they leave the ISR, and another replica leads.

They leave the ISR only if another replica is in sync or eligible and its broker runs. Otherwise this broker has the
only complete copy and stays in the ISR. In any case the store records that the replica is offline
(`cluster/own_replicas.py`), so that no broker waits for this one to lead or to copy it, and an operator who cannot wait
may elect another leader. The replica is back when the broker has restarted on a sound disk and has cleared the entry in
the store (`clear`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.partition import Partition
from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.own_replicas import clear_offline, mark_offline
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.ids import BrokerId
from respool.ports.metadata_store import Guard, GuardFailed, StoreUnavailable

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5


class OfflineReplicas:
    def __init__(
        self,
        *,
        me: BrokerId,
        catalog: Catalog,
        registration: Callable[[], Guard | None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`registration` is a guard that holds while this run of the broker is registered.

        Another run with the same broker id may have another disk, to which the reports of this run do not apply.
        """
        self._me = me
        self._catalog = catalog
        self._registration = registration
        self._spawn = spawn
        # Replicas whose entry in the store is being cleared: one task each, however often the image changes meanwhile.
        self._being_cleared: set[Partition] = set()

    def report(self, partition: Partition) -> None:
        self._spawn(self._keep_reported(partition))

    def clear(self, partition: Partition) -> None:
        """Clear the store's offline entry of a sound replica: it stems from an earlier run or from a late write."""
        if partition not in self._being_cleared:
            self._being_cleared.add(partition)
            self._spawn(self._clear(partition))

    async def _keep_reported(self, partition: Partition) -> None:
        """Keep reporting the replica while it is hosted here: a fetch in flight may bring it back into the ISR."""
        while not partition.is_detached:
            held = self._held(partition)
            if held is not None:
                topic, image = held
                after = mark_offline(
                    image,
                    self._me,
                    topic.rules,
                    live=self._catalog.image.brokers,
                    # This replica will be opened again without an operator.
                    is_passing=partition.awaits_opening,
                )
                await self._write(partition, image, after, why=self._description(image, after))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _clear(self, partition: Partition) -> None:
        try:
            while partition.is_online:
                held = self._held(partition)
                if held is None or self._me not in held[1].offline:
                    return
                image = held[1]
                after = clear_offline(image, self._me)
                await self._write(partition, image, after, why="it is in order here again")
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._being_cleared.discard(partition)

    def _held(self, partition: Partition) -> tuple[TopicImage, PartitionImage] | None:
        """Return the partition in the image; None if the image no longer assigns the replica to this broker."""
        name, number = partition.name
        topic = self._catalog.image.topics.get(name)
        if topic is None or topic.id != partition.topic_id or number >= len(topic.partitions):
            return None
        image = topic.partitions[number]
        return (topic, image) if self._me in image.replicas else None

    async def _write(
        self, partition: Partition, image: PartitionImage, after: PartitionImage, *, why: str
    ) -> None:
        registration = self._registration()
        if after == image or registration is None:
            return
        key = keys.partition_key(partition.topic_id, partition.name.partition)
        write = GuardedWrite(
            guards=(Guard(key=key, revision=image.revision), registration),
            puts={key: keys.encode_partition(after)},
            why=why,
        )
        try:
            await self._catalog.write(write)
        except (GuardFailed, StoreUnavailable) as error:
            logger.info("%s: %s: not yet: %s", partition.name, why, error)
        else:
            logger.warning("%s: %s", partition.name, why)

    def _description(self, before: PartitionImage, after: PartitionImage) -> str:
        if after.isr != before.isr:
            return f"left to the others in sync, {list(after.isr)}: it is offline here"
        if self._me in after.isr:
            return "it is offline here, and no other broker that runs has everything"
        return "it is offline here"
