"""Unique producer ids, allocated from the metadata store in blocks.

Each cluster starts at a number of its own, far from those of other clusters: a mirrored topic holds batches of another
cluster's producers. If a local producer had the id of one of them, its first batches would be dropped as duplicates
once the topic is promoted.

```
 63    62                  40                            0
 | 0 | of the cluster's id |   counter                   |
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
    """Return the first producer id of a cluster. It is never 0, where Kafka's ids begin."""
    digest = int.from_bytes(sha256(cluster_id.encode()).digest()[:8])
    return ProducerId((1 + digest % (2**CLUSTER_BITS - 1)) << COUNTED_BITS)


class ProducerIds:
    def __init__(self, store: MetadataStore, *, cluster_id: Callable[[], str]) -> None:
        """`cluster_id` is called only when the first producer asks; before that the id may be unknown."""
        self._store = store
        self._cluster_id = cluster_id
        self._block = range(0)
        self._claiming = asyncio.Lock()

    async def prepare(self) -> None:
        """Claim a block in advance, so that the first producers are served even while the store is unavailable."""
        async with self._claiming:
            if not self._block:
                try:
                    self._block = await self._claim_block()
                except StoreUnavailable as error:
                    logger.info("producer ids are claimed when one is needed: %s", error)

    async def next(self) -> ProducerId:
        """
        Raises:
            CoordinatorLoadInProgress: no id is available now.
        """
        async with self._claiming:
            if not self._block:
                try:
                    self._block = await self._claim_block()
                except StoreUnavailable as error:
                    # Retrying is safe: a block that was claimed in vain is never used. All clients retry at this code;
                    # some treat a timeout as fatal.
                    raise CoordinatorLoadInProgress(
                        f"no producer id is available now: {error}"
                    ) from error
            producer_id, self._block = self._block[0], self._block[1:]
            return ProducerId(producer_id)

    async def _claim_block(self) -> range:
        # A claimed block that is lost in a crash is never used: there are plenty of ids.
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
