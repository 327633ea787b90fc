"""Unique producer ids, allocated from the metadata store in blocks.

Each cluster starts at a number of its own, far from those of others: a mirrored topic holds batches of another
cluster's producers. If a local producer had the id of one of them, its first batches would be dropped as duplicates
once the topic is promoted.

```
 63    62                  40                            0
 | 0 | of the cluster's id |   counted up                |
```
"""

import asyncio
import json
import logging
from collections.abc import Callable
from hashlib import sha256

from respool.cluster.keys import PRODUCER_IDS
from respool.model.coordinator_errors import CoordinatorLoadInProgress
from respool.model.ids import ProducerId
from respool.ports.metadata_store import Guard, GuardFailed, MetadataStore, StoreUnavailable

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1_000
COUNTED_BITS = 40
CLUSTER_BITS = 22


def first_producer_id(cluster_id: str) -> ProducerId:
    """Where a cluster's ids begin. Never at 0, where Kafka's do."""
    digest = int.from_bytes(sha256(cluster_id.encode()).digest()[:8])
    return ProducerId((1 + digest % (2**CLUSTER_BITS - 1)) << COUNTED_BITS)


class ProducerIds:
    def __init__(self, store: MetadataStore, *, cluster_id: Callable[[], str]) -> None:
        """The cluster's id need not be known before the first producer comes."""
        self._store = store
        self._cluster_id = cluster_id
        self._block = range(0)
        self._claiming = asyncio.Lock()

    async def prepare(self) -> None:
        """Have some in hand, so that the first producers are served also while the store is away."""
        async with self._claiming:
            if not self._block:
                try:
                    self._block = await self._claim_block()
                except StoreUnavailable as error:
                    logger.info("producer ids are claimed when one is needed: %s", error)

    async def next(self) -> ProducerId:
        """
        Raises:
            CoordinatorLoadInProgress: none can be had now.
        """
        async with self._claiming:
            if not self._block:
                try:
                    self._block = await self._claim_block()
                except StoreUnavailable as error:
                    # May be tried again: what was claimed in vain is never given out. Every client does when it hears
                    # this; some give up when they hear that the time is over.
                    raise CoordinatorLoadInProgress(
                        f"no producer id can be had now: {error}"
                    ) from error
            producer_id, self._block = self._block[0], self._block[1:]
            return ProducerId(producer_id)

    async def _claim_block(self) -> range:
        # A block claimed and lost with a crash is never given out: ids are plenty.
        while True:
            stored = await self._store.get(PRODUCER_IDS)
            first = (
                json.loads(stored.value)["next"]
                if stored
                else first_producer_id(self._cluster_id())
            )
            claimed = json.dumps({"next": first + BLOCK_SIZE}).encode()
            guard = Guard(key=PRODUCER_IDS, revision=stored.revision if stored else 0)
            try:
                await self._store.transact(guards=[guard], puts={PRODUCER_IDS: claimed})
            except GuardFailed:
                continue
            return range(first, first + BLOCK_SIZE)
