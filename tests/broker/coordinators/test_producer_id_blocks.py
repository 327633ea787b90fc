"""Producer ids: never the same twice, and some in hand."""

import asyncio
from pathlib import Path

import pytest

from respool.broker.coordinators.producer_id_blocks import (
    BLOCK_SIZE,
    ProducerIds,
    first_producer_id,
)
from respool.drivers.sqlite_store import SqliteStore
from respool.drivers.system_sources import SystemClock
from respool.model.coordinator_errors import CoordinatorLoadInProgress
from respool.ports.metadata_store import StoreUnavailable


def test_two_brokers_never_give_out_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore(str(tmp_path / "store"), clock=SystemClock())
        one, two = (ProducerIds(store, cluster_id=lambda: "c") for _ in range(2))
        await asyncio.gather(one.prepare(), two.prepare())
        ids = [await (one, two)[n % 2].next() for n in range(3 * BLOCK_SIZE)]
        assert len(set(ids)) == len(ids)
        assert min(ids) == first_producer_id("c")
        await store.close()

    asyncio.run(story())


def test_who_has_prepared_needs_no_store_for_the_first_producers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = SqliteStore(str(tmp_path / "store"), clock=SystemClock())
        prepared, late = (ProducerIds(store, cluster_id=lambda: "c") for _ in range(2))
        await prepared.prepare()

        async def away(key: str) -> None:
            raise StoreUnavailable(f"{key}: nobody answers")

        monkeypatch.setattr(store, "get", away)
        await late.prepare()
        assert await prepared.next() == first_producer_id("c")
        assert await prepared.next() == first_producer_id("c") + 1
        with pytest.raises(CoordinatorLoadInProgress):
            await late.next()
        await store.close()

    asyncio.run(story())
