"""Producer ids, never given out twice: taken from the metadata store in blocks."""

import asyncio
import json

from respool.cluster.keys import PRODUCER_IDS
from respool.model.ids import ProducerId
from respool.ports.metadata_store import Guard, GuardFailed, MetadataStore

BLOCK_SIZE = 1_000


class ProducerIds:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._block = iter(range(0))
        self._claiming = asyncio.Lock()

    async def next(self) -> ProducerId:
        async with self._claiming:
            for producer_id in self._block:
                return ProducerId(producer_id)
            self._block = iter(await self._claim_block())
            return ProducerId(next(self._block))

    async def _claim_block(self) -> range:
        # A block claimed and lost with a crash is never given out: ids are plenty.
        while True:
            stored = await self._store.get(PRODUCER_IDS)
            first = json.loads(stored.value)["next"] if stored else 0
            claimed = json.dumps({"next": first + BLOCK_SIZE}).encode()
            guard = Guard(key=PRODUCER_IDS, revision=stored.revision if stored else 0)
            try:
                await self._store.transact(guards=[guard], puts={PRODUCER_IDS: claimed})
            except GuardFailed:
                continue
            return range(first, first + BLOCK_SIZE)
