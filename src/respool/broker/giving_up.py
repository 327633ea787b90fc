"""A partition that went offline here is left to the others: it leaves the ISR, and another one leads.

Only where another replica is in sync, or eligible, and runs. Else this broker has the only copy that is worth anything:
it keeps its place, and the partition is back when the broker is restarted on a sound disk.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from respool.broker.catalog import Catalog
from respool.broker.partition import Partition
from respool.cluster import keys
from respool.cluster.election import step_back
from respool.cluster.guarded_write import GuardedWrite
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch
from respool.ports.metadata_store import Guard, GuardFailed, StoreUnavailable

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5


class GivingUp:
    def __init__(
        self,
        *,
        me: BrokerId,
        catalog: Catalog,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._spawn = spawn

    def give_up(self, partition: Partition) -> None:
        self._spawn(self._give_up(partition))

    async def _give_up(self, partition: Partition) -> None:
        """For as long as it is here: a fetch that was under way may bring it into the ISR again."""
        while not partition.is_detached:
            write = self._write(partition)
            if write is not None:
                try:
                    await self._catalog.write(write)
                except (GuardFailed, StoreUnavailable) as error:
                    logger.info("%s: %s: not yet: %s", partition.name, write.why, error)
                else:
                    logger.warning("%s: %s", partition.name, write.why)
            await asyncio.sleep(LOOK_EVERY_S)

    def _write(self, partition: Partition) -> GuardedWrite | None:
        """What is to be written; None when there is nothing to give up, or nobody to give it to."""
        name, number = partition.name
        held = self._catalog.image.topics.get(name)
        if held is None or held.id != partition.topic_id or number >= len(held.partitions):
            return None
        image = held.partitions[number]
        if self._me not in image.isr or not self._has_heir(image):
            return None
        topic = self._catalog.view().topics[name]
        after = step_back(image, self._me, topic.rules, was_clean=False)
        bump = after.leader != image.leader
        after = replace(after, leader_epoch=LeaderEpoch(image.leader_epoch + bump))
        key = keys.partition_key(topic.id, number)
        return GuardedWrite(
            guards=(Guard(key=key, revision=image.revision),),
            puts={key: keys.encode_partition(after)},
            why=f"left to the others in sync, {list(after.isr)}: it is offline here",
        )

    def _has_heir(self, image: PartitionImage) -> bool:
        # Who is eligible has all that is committed too; elected out of the ELR itself, it may be the only one in sync.
        brokers = self._catalog.image.brokers
        return any(one in brokers for one in (*image.isr, *image.elr) if one != self._me)
