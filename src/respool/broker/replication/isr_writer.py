"""Writes a leader's ISR changes to the metadata store, one guarded write each, and reports the result.

The guards are the partition's key, as it was when the leader decided, and each joiner's registration: a broker that has
crashed since may have lost what it had fetched (KIP-903). After a refused or unanswered write the key is read; only
then does the leader decide again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.partition import Partition
from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite
from respool.model.cluster import PartitionImage
from respool.ports.metadata_store import Guard, GuardFailed, MetadataStore, StoreUnavailable
from respool.replication.effects import ProposeIsr
from respool.replication.leader import Leader

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.2


class IsrWriter:
    def __init__(
        self,
        *,
        catalog: Catalog,
        store: MetadataStore,
        may_act: Callable[[], bool],
        on_newer_image: Callable[[Partition, PartitionImage], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`on_newer_image` gets a partition whose key had to be read from the store: the new state may end the role."""
        self._catalog = catalog
        self._store = store
        self._may_act = may_act
        self._on_newer_image = on_newer_image
        self._spawn = spawn

    def propose(self, partition: Partition, leader: Leader, proposal: ProposeIsr) -> None:
        self._spawn(self._write(partition, leader, proposal))

    async def _write(self, partition: Partition, leader: Leader, proposal: ProposeIsr) -> None:
        key = keys.partition_key(partition.topic_id, partition.name.partition)
        image = proposal.image
        guards = [Guard(key=key, revision=image.revision)] if image.revision else []
        guards += [
            Guard(key=keys.broker_key(broker), revision=epoch) for broker, epoch in proposal.joiners
        ]
        why = f"{partition.name}: in sync {list(image.isr)}, eligible {list(image.elr)}"
        report = leader.on_isr_refused
        try:
            # Without a valid lease another broker may be the leader by now.
            if self._may_act():
                # When this returns, the image has the change and the leader was notified of it.
                await self._catalog.write(
                    GuardedWrite(
                        guards=tuple(guards), puts={key: keys.encode_partition(image)}, why=why
                    )
                )
                logger.info("%s", why)
                return
        except GuardFailed as error:
            logger.info("%s: refused: %s", why, error)
        except StoreUnavailable as error:
            logger.info("%s: not answered: %s", why, error)
            report = leader.on_isr_unknown
        stored = await self._read(key, lambda: partition.leader is leader)
        if partition.leader is leader and stored is not None:
            report(proposal)
            self._on_newer_image(partition, stored)

    async def _read(self, key: str, is_wanted: Callable[[], bool]) -> PartitionImage | None:
        while is_wanted():
            # Not immediately: the change that caused the refusal is often still in progress.
            await asyncio.sleep(RETRY_DELAY_S)
            try:
                stored = await self._store.get(key)
            except StoreUnavailable:
                continue
            if stored is None:
                return None
            return keys.decode_partition(stored.value, revision=stored.revision)
        return None
